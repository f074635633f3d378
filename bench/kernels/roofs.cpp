// See roofs.h. Compiled for AVX-512 and AMX; called only where the processor has them.
#include "kernels/roofs.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace okibi::bench {

bool permit_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

double vnni_rounds(int64_t n) {
  __m512i w = _mm512_set1_epi8(1);
  __m512i a[12];
  for (__m512i& v : a) v = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; ++i) {
    __asm__ volatile("" : "+v"(w));
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) a[j] = _mm512_dpbusd_epi32(a[j], w, w);
  }
  __m512i sum = a[0];
  for (int j = 1; j < 12; ++j) sum = _mm512_add_epi32(sum, a[j]);
  volatile int keep = _mm512_reduce_add_epi32(sum);
  (void)keep;
  return 12.0 * 64 * static_cast<double>(n);
}

double amx_rounds(int64_t n) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  __asm__ volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
  for (int64_t i = 0; i < n; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 64 * static_cast<double>(n);
}

double read_rounds(int64_t n, const uint8_t* p, int64_t bytes) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t o = 0; o < bytes; o += 256) {
      for (int64_t l = 0; l < 256; l += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(p + o + 4096 + l), _MM_HINT_T0);
        sum = _mm512_xor_si512(sum, _mm512_load_si512(p + o + l));
      }
    }
  }
  volatile int keep = _mm512_reduce_add_epi32(sum);
  (void)keep;
  return static_cast<double>(bytes) * static_cast<double>(n);
}

}  // namespace okibi::bench
