// Limits of AVX-512: vpdpbusd, fused multiply-adds, 512-bit loads.
#include "cpu/kernels/avx512/roofs.h"

#include <immintrin.h>

namespace okibi::cpu::avx512 {
namespace {

// The barrier takes a variable of its own: on an element GCC keeps the whole array in memory, and
// the loop measures stores and loads.
constexpr int kAccumulators = 16;

uint64_t int8_ops(uint64_t n_iterations) {
  __m512i acc[kAccumulators];
  for (int j = 0; j < kAccumulators; ++j) acc[j] = _mm512_set1_epi32(j);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (uint64_t i = 0; i < n_iterations; ++i) {
    for (int j = 0; j < kAccumulators; ++j) {
      __m512i sum = _mm512_dpbusd_epi32(acc[j], a, b);
      __asm__ volatile("" : "+v"(sum));
      acc[j] = sum;
    }
  }
  return n_iterations * kAccumulators * 128;
}

uint64_t float_ops(uint64_t n_iterations) {
  __m512 acc[kAccumulators];
  for (int j = 0; j < kAccumulators; ++j) acc[j] = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (uint64_t i = 0; i < n_iterations; ++i) {
    for (int j = 0; j < kAccumulators; ++j) {
      __m512 sum = _mm512_fmadd_ps(acc[j], a, b);
      __asm__ volatile("" : "+v"(sum));
      acc[j] = sum;
    }
  }
  return n_iterations * kAccumulators * 32;
}

uint64_t read(const uint8_t* data, uint64_t n) {
  __m512i sum[8];
  for (int j = 0; j < 8; ++j) sum[j] = _mm512_setzero_si512();
  for (uint64_t i = 0; i < n; i += 512) {
    for (int j = 0; j < 8; ++j) {
      sum[j] = _mm512_add_epi64(sum[j], _mm512_loadu_si512(data + i + 64 * j));
    }
  }
  for (int j = 1; j < 8; ++j) sum[0] = _mm512_add_epi64(sum[0], sum[j]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum[0]));
}

}  // namespace

void install_roofs(KernelTable& table) {
  table.roofs = {
      .int8_ops = int8_ops, .int8_name = "vpdpbusd", .float_ops = float_ops, .read = read};
}

}  // namespace okibi::cpu::avx512
