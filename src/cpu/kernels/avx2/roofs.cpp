// Limits of AVX2: maddubs + madd + add chains, fused multiply-adds, 256-bit loads.
#include "cpu/kernels/avx2/roofs.h"

#include <immintrin.h>

namespace okibi::cpu::avx2 {
namespace {

// The barrier takes a variable of its own: on an element GCC keeps the whole array in memory, and
// the loop measures stores and loads.
constexpr int kAccumulators = 10;

uint64_t int8_ops(uint64_t n_iterations) {
  __m256i acc[kAccumulators];
  for (int j = 0; j < kAccumulators; ++j) acc[j] = _mm256_set1_epi32(j);
  const __m256i a = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  for (uint64_t i = 0; i < n_iterations; ++i) {
    for (int j = 0; j < kAccumulators; ++j) {
      __m256i sum =
          _mm256_add_epi32(acc[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a, acc[j]), ones));
      __asm__ volatile("" : "+x"(sum));
      acc[j] = sum;
    }
  }
  return n_iterations * kAccumulators * 64;
}

uint64_t float_ops(uint64_t n_iterations) {
  __m256 acc[kAccumulators];
  for (int j = 0; j < kAccumulators; ++j) acc[j] = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (uint64_t i = 0; i < n_iterations; ++i) {
    for (int j = 0; j < kAccumulators; ++j) {
      __m256 sum = _mm256_fmadd_ps(acc[j], a, b);
      __asm__ volatile("" : "+x"(sum));
      acc[j] = sum;
    }
  }
  return n_iterations * kAccumulators * 16;
}

uint64_t read(const uint8_t* data, uint64_t n) {
  __m256i sum[8];
  for (int j = 0; j < 8; ++j) sum[j] = _mm256_setzero_si256();
  for (uint64_t i = 0; i < n; i += 256) {
    for (int j = 0; j < 8; ++j) {
      sum[j] = _mm256_add_epi64(
          sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
    }
  }
  for (int j = 1; j < 8; ++j) sum[0] = _mm256_add_epi64(sum[0], sum[j]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 0));
}

}  // namespace

void install_roofs(KernelTable& table) {
  table.roofs = {
      .int8_ops = int8_ops, .int8_name = "vpmaddubsw", .float_ops = float_ops, .read = read};
}

}  // namespace okibi::cpu::avx2
