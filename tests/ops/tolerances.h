// How far each operation may be from its double-precision definition, as NMSE over a buffer. One
// float32 rounding is at most 2^-24 relative, 3.6e-15 squared; sums of n terms in 16 lanes lose a
// few times that.
#pragma once

namespace okibi::ops_test {

constexpr double kRmsNorm = 1e-13;    // one sum of squares, a root, two products
constexpr double kSiluMul = 1e-13;    // an exponential of 2 ulp, a quotient
constexpr double kLayerNorm = 1e-13;  // two sums in 16 lanes, a root, a product and a sum
constexpr double kRope = 1e-13;       // two products and a sum, cosines rounded once
constexpr double kShortConv = 1e-13;  // n_taps products in order
constexpr double kStreams = 1e-13;    // logistic functions, a few products and sums
// A state is the sum of what all rows before left in it; errors of one row decay with it.
constexpr double kDeltaRule = 1e-11;
// Three norms and a gate whose root is steep near zero, then n_taps products in order.
constexpr double kNgramMix = 1e-12;
// Scores of up to 256 terms go through exp: an error of 1e-6 in a score is one of 1e-6 in a weight.
constexpr double kAttend = 1e-11;
// Scores in the hundreds have absolute errors of 1e-4.
constexpr double kAttendSharp = 1e-7;
// The same against keys and values before they were stored: 11 bits of float16, 8 bits of q8_0.
// Factors of 8 bits: 1e-3 in each of the dot's terms, so about 1e-2 in a score of such data.
constexpr double kAttendRounded = 1e-4;
constexpr double kAttendF16Stored = 1e-6;
constexpr double kAttendQ8Stored = 5e-4;
constexpr double kFloatProduct = 1e-11;  // a serial sum of n_in float32 products
// Activations of 8 bits per block against exact ones, weights exact.
constexpr double kQuantizedProduct = 2e-4;
// A mixture of experts: three such products of independent errors, of which the first two meet in a
// product; silu and the weights of experts add less than 1e-12.
constexpr double kExpertsFloat = 1e-10;
constexpr double kExpertsQuantized = 6e-4;

}  // namespace okibi::ops_test
