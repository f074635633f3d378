// One block of each quantised type to floats, grouped by family. Private to tensor/: users call
// dequantize_row. `b` is the block, unaligned; `x` receives block_size values.
#pragma once

#include <cstdint>

namespace okibi::blocks {

// dequantize_simple.cpp: one scale per 32 to 256 values, and the activation formats.
void dequantize_q4_0(const uint8_t* b, float* x);
void dequantize_q4_1(const uint8_t* b, float* x);
void dequantize_q5_0(const uint8_t* b, float* x);
void dequantize_q5_1(const uint8_t* b, float* x);
void dequantize_q8_0(const uint8_t* b, float* x);
void dequantize_q8_1(const uint8_t* b, float* x);
void dequantize_q8_k(const uint8_t* b, float* x);
void dequantize_q1_0(const uint8_t* b, float* x);
void dequantize_q2_0(const uint8_t* b, float* x);
void dequantize_tq1_0(const uint8_t* b, float* x);
void dequantize_tq2_0(const uint8_t* b, float* x);
void dequantize_mxfp4(const uint8_t* b, float* x);
void dequantize_nvfp4(const uint8_t* b, float* x);

// dequantize_k.cpp: super-blocks of 256 with quantised scales.
void dequantize_q2_k(const uint8_t* b, float* x);
void dequantize_q3_k(const uint8_t* b, float* x);
void dequantize_q4_k(const uint8_t* b, float* x);
void dequantize_q5_k(const uint8_t* b, float* x);
void dequantize_q6_k(const uint8_t* b, float* x);

// dequantize_iq.cpp: code books.
void dequantize_iq1_s(const uint8_t* b, float* x);
void dequantize_iq1_m(const uint8_t* b, float* x);
void dequantize_iq2_xxs(const uint8_t* b, float* x);
void dequantize_iq2_xs(const uint8_t* b, float* x);
void dequantize_iq2_s(const uint8_t* b, float* x);
void dequantize_iq3_xxs(const uint8_t* b, float* x);
void dequantize_iq3_s(const uint8_t* b, float* x);
void dequantize_iq4_nl(const uint8_t* b, float* x);
void dequantize_iq4_xs(const uint8_t* b, float* x);

}  // namespace okibi::blocks
