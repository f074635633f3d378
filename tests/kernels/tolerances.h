// How far a product may lie from the exact one, and why. The error is normalised by what the
// squared result of unrelated weights and activations is expected to be,
//   sum (y - exact)^2 / sum max(exact^2, |w|^2 |x|^2 / n_in),
// because single results may be near zero by chance. For random data this is half the NMSE or more.
#pragma once

namespace okibi::kernel_test {

// Against the product of the quantised activations in double: nothing is lost but float32 rounding
// of one scale product and one addition per block. 2^-24 relative per step, about n_in / 32 steps
// of growing sums: (60 * 2^-24)^2 = 1e-11 would need all errors to agree; random ones stay 100
// times lower.
constexpr double kRoundingNmse = 1e-11;

// Float activations are added one by one, so n_in steps instead of n_in / 32, and where all
// products have one sign the roundings of the growing sum lean one way: (1280 * 2^-25)^2 = 1.5e-9.
constexpr double kFloatRoundingNmse = 1e-9;

// Against the product of the original activations: 8-bit rounding. A step is max / 127, its error
// uniform, so step^2 / 12; for Gaussian blocks of 32 max is about 2.1 sigma (2.3e-5), for blocks of
// 256 about 2.9 sigma (4.3e-5), seldom 4.5 sigma (1.05e-4).
constexpr double kQ8B32Nmse = 6e-5;
constexpr double kQ8B256Nmse = 1.1e-4;

// The golden dots, in units of the sum of absolute products: what the oracle's manifest allows for
// float32 accumulation, and the 0.5 % that its own 8-bit dots differ by at most (0.503 % in TQ2_0).
constexpr double kGoldenFloat = 4e-6;
constexpr double kGoldenQuantised = 5.1e-3;

}  // namespace okibi::kernel_test
