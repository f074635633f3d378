// The constant tables of the quantised formats, as plain data: sign bytes, code books and level
// tables. How a type uses them is in tensor/dequantize.cpp; the numbers are made by
// tools/make_codebooks.py. Holds no code, so files built for one instruction set may include it.
// Every table starts on a 64-byte boundary; rows are packed.
#pragma once

#include <cstdint>

namespace okibi {

// 7-bit sign index to sign byte: bit j set negates value j of its group of 8 (even parity).
extern const uint8_t kKSigns[128];

// Magnitudes of 8 (IQ3: 4) consecutive values per index.
extern const uint8_t kIq2XxsGrid[256][8];  // 8, 25, 43
extern const uint8_t kIq2XsGrid[512][8];   // 8, 25, 43
extern const uint8_t kIq2SGrid[1024][8];   // 8, 25, 43
extern const uint8_t kIq3XxsGrid[256][4];  // 4 .. 62
extern const uint8_t kIq3SGrid[512][4];    // odd, 1 .. 15

// IQ1_S and IQ1_M: 8 values of -1, 0, 1; the block adds its +-0.125 to each.
extern const int8_t kIq1Grid[2048][8];

// Levels of the 4-bit codes. The FP4 values are doubled: the scale is used halved.
extern const int8_t kIq4NlValues[16];
extern const int8_t kFp4ValuesX2[16];

// TQ1_0: multiplier (modulo 256) that brings trit n of a byte to the top.
extern const uint8_t kPow3[5];

}  // namespace okibi
