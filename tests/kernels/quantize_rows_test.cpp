// Activation rows to int8: the stated formula, and the same bits on every level.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/linear_harness.h"

namespace okibi::kernel_test {
namespace {

using cpu::KernelTable;

struct Quantised {
  Buffer<int8_t> q;
  Buffer<float> d;
  Buffer<int32_t> sums;
};

// `block` is 32 or 256; sums of 32 or of 16 values.
Quantised quantise(const KernelTable& table, const std::vector<float>& x, int64_t block) {
  const int64_t n = static_cast<int64_t>(x.size()), n_sums = block == 32 ? n / 32 : n / 16;
  Quantised out{Buffer<int8_t>(n), Buffer<float>(n / block), Buffer<int32_t>(n_sums)};
  Buffer<float> row(n);
  std::copy(x.begin(), x.end(), row.data());
  if (block == 32) {
    table.quantize_q8b32(row.data(), n, out.q.data(), out.d.data(), out.sums.data());
    return out;
  }
  Buffer<int16_t> sums16(n_sums);
  table.quantize_q8b256(row.data(), n, out.q.data(), out.d.data(), sums16.data());
  for (int64_t i = 0; i < n_sums; ++i) out.sums[i] = sums16[i];
  return out;
}

// Rows that meet every rule: ordinary values, ties, zeros, tiny and huge blocks.
std::vector<float> hard_row(Rng& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(256 * 8);
  for (size_t i = 0; i < x.size(); ++i) {
    switch (i / 256) {
      case 0:
        x[i] = normal(rng);
        break;
      case 1:  // steps of one half: ties, with a largest value of exactly 127
        x[i] = i % 32 == 0 ? -127.0f : static_cast<float>(static_cast<int>(rng() % 253) - 126) / 2;
        break;
      case 2:
        x[i] = i % 64 < 32 ? 0.0f : -0.0f;
        break;
      case 3:
        x[i] = normal(rng) * 1e-31f;
        break;
      case 4:
        x[i] = normal(rng) * 1e-29f;
        break;
      case 5:
        x[i] = normal(rng) * 1e37f;
        break;
      case 6:
        x[i] = i == 6 * 256 + 77 ? 1000.0f : normal(rng);
        break;
      default:
        x[i] = rng() & 1 ? 1.5f : -1.5f;
    }
  }
  return x;
}

TEST(QuantizeRows, FollowTheStatedFormula) {
  Rng rng(3);
  const std::vector<float> x = hard_row(rng);
  for (const int64_t block : {32, 256}) {
    const Quantised out = quantise(host_tables().front(), x, block);
    for (int64_t b = 0; b < out.d.size(); ++b) {
      float largest = 0;
      for (int64_t i = 0; i < block; ++i) largest = std::max(largest, std::fabs(x[b * block + i]));
      const bool zero = largest < 1e-30f;
      EXPECT_EQ(out.d[b], zero ? 0.0f : largest / 127.0f);
      for (int64_t i = b * block; i < (b + 1) * block; ++i) {
        const int q = zero ? 0 : static_cast<int>(std::nearbyint(x[i] * (127.0f / largest)));
        ASSERT_EQ(out.q[i], q) << "value " << i << " in blocks of " << block;
      }
    }
    const int64_t per_sum = block == 32 ? 32 : 16;
    for (int64_t s = 0; s < out.sums.size(); ++s) {
      int sum = 0;
      for (int64_t i = 0; i < per_sum; ++i) sum += out.q[s * per_sum + i];
      EXPECT_EQ(out.sums[s], sum);
    }
  }
}

TEST(QuantizeRows, GiveTheSameBitsOnEveryLevel) {
  Rng rng(4);
  for (const int64_t n : {256, 512, 2048}) {
    std::vector<float> x = hard_row(rng);
    x.resize(n);
    for (const int64_t block : {32, 256}) {
      const Quantised expected = quantise(host_tables().front(), x, block);
      for (const KernelTable& table : host_tables()) {
        const Quantised found = quantise(table, x, block);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(found.q[i], expected.q[i]) << table.level << " value " << i;
        }
        for (int64_t i = 0; i < found.d.size(); ++i) EXPECT_EQ(found.d[i], expected.d[i]);
        for (int64_t i = 0; i < found.sums.size(); ++i) EXPECT_EQ(found.sums[i], expected.sums[i]);
      }
    }
  }
}

TEST(QuantizeRows, HandleEveryNumberOfBlocksOf32) {
  Rng rng(5);
  for (int64_t n = 32; n <= 32 * 19; n += 32) {
    const std::vector<float> x = random_activations(1, n, false, rng);
    const Quantised expected = quantise(host_tables().front(), x, 32);
    for (const KernelTable& table : host_tables()) {
      const Quantised found = quantise(table, x, 32);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(found.q[i], expected.q[i]) << table.level;
      for (int64_t i = 0; i < n / 32; ++i) {
        EXPECT_EQ(found.d[i], expected.d[i]);
        EXPECT_EQ(found.sums[i], expected.sums[i]);
      }
    }
  }
}

}  // namespace
}  // namespace okibi::kernel_test
