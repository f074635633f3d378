// Type numbers and block sizes of the weight formats as plain constants, for kernel files, which
// include no other headers of ours (docs/kernels.md). canonical.cpp asserts that they agree with
// tensor/dtype.h.
#pragma once

#include <cstdint>

namespace okibi::cpu::weight {

constexpr int kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10,
              kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kIQ2_XXS = 16, kIQ2_XS = 17,
              kIQ3_XXS = 18, kIQ1_S = 19, kIQ4_NL = 20, kIQ3_S = 21, kIQ2_S = 22, kIQ4_XS = 23,
              kIQ1_M = 29, kBF16 = 30, kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40,
              kQ1_0 = 41, kQ2_0 = 42;

struct BlockShape {
  int type;
  int32_t values, bytes;
};

constexpr BlockShape kShapes[] = {
    {kF32, 1, 4},        {kF16, 1, 2},       {kQ4_0, 32, 18},     {kQ4_1, 32, 20},
    {kQ5_0, 32, 22},     {kQ5_1, 32, 24},    {kQ8_0, 32, 34},     {kQ2_K, 256, 84},
    {kQ3_K, 256, 110},   {kQ4_K, 256, 144},  {kQ5_K, 256, 176},   {kQ6_K, 256, 210},
    {kIQ2_XXS, 256, 66}, {kIQ2_XS, 256, 74}, {kIQ3_XXS, 256, 98}, {kIQ1_S, 256, 50},
    {kIQ4_NL, 32, 18},   {kIQ3_S, 256, 110}, {kIQ2_S, 256, 82},   {kIQ4_XS, 256, 136},
    {kIQ1_M, 256, 56},   {kBF16, 1, 2},      {kTQ1_0, 256, 54},   {kTQ2_0, 256, 66},
    {kMXFP4, 32, 17},    {kNVFP4, 64, 36},   {kQ1_0, 128, 18},    {kQ2_0, 64, 18},
};

// Meant for constant expressions: X(type) as a template or constexpr argument leaves no code.
constexpr BlockShape shape_of(int type) {
  for (const BlockShape& s : kShapes) {
    if (s.type == type) return s;
  }
  return {type, 0, 0};
}

}  // namespace okibi::cpu::weight
