// What one core of this machine can do at best, measured: the roofs that bench_linear divides by.
#pragma once

#include <cstdint>

namespace okibi::bench {

// Asks the system for AMX tile state; false where there is none.
bool permit_amx();

// Each runs `n` rounds on the calling thread and returns the multiply-adds (bytes) of all rounds.
double vnni_rounds(int64_t n);  // independent vpdpbusd on registers
double amx_rounds(int64_t n);   // independent tdpbssd on registers
double read_rounds(int64_t n, const uint8_t* p, int64_t bytes);  // 64-byte loads

}  // namespace okibi::bench
