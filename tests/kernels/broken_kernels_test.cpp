// The checks themselves: kernels with a planted fault must be found by the functions that the tests
// of real kernels use, and a correct one must pass. Also that a table holds its own level's names.
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "base/f16.h"
#include "cpu/weight_types.h"
#include "kernels/linear_harness.h"
#include "platform/cpu_features.h"

namespace okibi::kernel_test {
namespace {

using cpu::KernelTable;
using cpu::LinearKernels;
using cpu::ProductArgs;

enum class Fault {
  kNone,
  kReductionDependsOnRows,  // five rows and more add their blocks in another order
  kLastOutputMissing,       // an odd last output is left alone
  kWritesPastTheEnd,
  kOffsetDropped,  // codes are taken as 0..15
  kRowBeginIgnored,
  kAccumulateIgnored,
  kGemvSkipsScale
};

// sum of one block of Q4_0 with one block of activations.
float block_term(const uint8_t* block, const int8_t* q, float da, int32_t sum, bool drop_offset) {
  int32_t v = drop_offset ? 0 : -8 * sum;
  for (int i = 0; i < 16; ++i) v += (block[2 + i] & 15) * q[i] + (block[2 + i] >> 4) * q[i + 16];
  uint16_t d;
  std::memcpy(&d, block, 2);
  return static_cast<float>(v) * f16_to_float(d) * da;
}

template <Fault kFault, bool kGemm>
void product(const ProductArgs& args) {
  const int64_t n_blocks = args.w.n_in / 32;
  int64_t end = args.panel_end;
  if (kFault == Fault::kLastOutputMissing && (args.w.n_out & 1) && end == args.w.n_out) --end;
  if (kFault == Fault::kWritesPastTheEnd && end == args.w.n_out) ++end;
  const int64_t row_begin = kFault == Fault::kRowBeginIgnored ? 0 : args.row_begin;
  const bool backwards =
      kFault == Fault::kReductionDependsOnRows && kGemm && args.row_end - args.row_begin > 4;
  for (int64_t o = args.panel_begin; o < end; ++o) {
    const uint8_t* w = args.w.data + std::min(o, args.w.n_out - 1) * args.w.panel_bytes;
    for (int64_t r = row_begin; r < args.row_end; ++r) {
      float acc = 0.0f;
      for (int64_t i = 0; i < n_blocks; ++i) {
        const int64_t b = backwards ? n_blocks - 1 - i : i;
        acc += block_term(w + 18 * b, args.a.q + r * args.a.q_stride + 32 * b,
                          args.a.d[r * args.a.d_stride + b], args.a.sums32[r * args.a.d_stride + b],
                          kFault == Fault::kOffsetDropped);
      }
      if (kFault != Fault::kGemvSkipsScale || kGemm) acc *= args.w.scale;
      float* out = args.out + r * args.out_stride + o;
      *out = args.accumulate && kFault != Fault::kAccumulateIgnored ? *out + acc : acc;
    }
  }
}

template <Fault kFault>
LinearKernels kernels_with() {
  LinearKernels k = host_tables().front().linear[cpu::weight::kQ4_0];
  k.gemv = product<kFault, false>;
  k.gemm = product<kFault, true>;
  k.gemv_name = k.gemm_name = "broken";
  return k;
}

class PlantedFault : public testing::Test {
 protected:
  std::string problems(const LinearKernels& k) {
    Rng rng(7);
    const Matrix m = random_matrix(DType::kQ4_0, 512, 33, Scales::kUsual, rng);
    const std::vector<float> x = random_activations(9, 512, true, rng);
    Product scaled(host_tables().front(), k, m, x, 0.3f);
    Product product(host_tables().front(), k, m, x);
    return check_close(product) + check_same_bits(scaled, rng) + check_unpack(product);
  }
};

TEST_F(PlantedFault, IsNotSeenInACorrectKernel) {
  EXPECT_EQ(problems(kernels_with<Fault::kNone>()), "");
}

TEST_F(PlantedFault, IsFoundWhenTheReductionDependsOnTheNeighbours) {
  EXPECT_NE(problems(kernels_with<Fault::kReductionDependsOnRows>()), "");
}

TEST_F(PlantedFault, IsFoundInTheTail) {
  EXPECT_NE(problems(kernels_with<Fault::kLastOutputMissing>()), "");
  EXPECT_NE(problems(kernels_with<Fault::kWritesPastTheEnd>()), "");
}

TEST_F(PlantedFault, IsFoundWhenTheOffsetOfTheCodesIsDropped) {
  EXPECT_NE(problems(kernels_with<Fault::kOffsetDropped>()), "");
}

TEST_F(PlantedFault, IsFoundInRangesScaleAndAccumulation) {
  EXPECT_NE(problems(kernels_with<Fault::kRowBeginIgnored>()), "");
  EXPECT_NE(problems(kernels_with<Fault::kAccumulateIgnored>()), "");
  EXPECT_NE(problems(kernels_with<Fault::kGemvSkipsScale>()), "");
}

void pack_with_a_wrong_byte(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  host_tables().front().linear[cpu::weight::kQ4_0].pack(rows, n_rows, n_in, panel);
  panel[5] ^= 1;
}

TEST_F(PlantedFault, IsFoundInThePackedLayout) {
  LinearKernels k = kernels_with<Fault::kNone>();
  k.pack = pack_with_a_wrong_byte;
  EXPECT_NE(problems(k), "");
}

// Position of a kernel's level among the levels, by the prefix of its name.
int level_of(std::string_view kernel) {
  constexpr std::string_view kLevels[] = {"reference.", "avx2.", "avx512.", "amx."};
  for (int i = 0; i < 4; ++i) {
    if (kernel.substr(0, kLevels[i].size()) == kLevels[i]) return i;
  }
  return -1;
}

TEST(ForcedLevel, HoldsItsOwnKernelsAndNoneOfAHigherLevel) {
  for (size_t level = 0; level < host_tables().size(); ++level) {
    const KernelTable& table = host_tables()[level];
    int own = 0;
    for (const DType type : weight_types()) {
      for (const LinearKernels* k : {table.linear, table.linear_f32}) {
        const LinearKernels& kernels = k[static_cast<int>(type)];
        ASSERT_NE(kernels.gemv_name, nullptr);
        for (const std::string_view name : {kernels.gemv_name, kernels.gemm_name}) {
          EXPECT_GE(level_of(name), 0) << name;
          EXPECT_LE(level_of(name), static_cast<int>(level)) << name << " in " << table.level;
          own += level_of(name) == static_cast<int>(level);
        }
      }
    }
    EXPECT_GT(own, 0) << table.level << " has no kernel of its own";
  }
}

}  // namespace
}  // namespace okibi::kernel_test
