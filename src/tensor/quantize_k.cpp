// Quantisers of the K types. Each group is first fitted on its own by a search over scale factors
// with a weighted least-squares solve per candidate; then the group scales are quantised against
// the super-block's factor, and the codes are chosen again for the scales as stored.
#include <cmath>
#include <cstring>

#include "tensor/quantize_blocks.h"
#include "tensor/scale_pairs.h"

namespace okibi::blocks {
namespace {

// x ~ scale * code - minimum, minimum >= 0.
struct AffineFit {
  float scale;
  float minimum;
};

struct FitOptions {
  int top;           // codes are 0..top
  float first_step;  // the search tries (top + first_step + 0.1 t) / range, t = 0 .. n_steps - 1
  int n_steps;
};

// Weighted squared error of scale * code + low against x.
float fit_error(const float* x, const float* w, const float* codes, float scale, float low) {
  float error = 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float difference = scale * codes[i] + low - x[i];
    error += w[i] * (difference * difference);
  }
  return error;
}

// The least-squares (scale, low) for fixed codes, with low <= 0. False: the system is singular.
bool solve_affine(const float* x, const float* w, const float* codes, float sum_w, float sum_x,
                  float* scale, float* low) {
  float sum_l = 0.0f, sum_l2 = 0.0f, sum_xl = 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float wl = w[i] * codes[i];
    sum_l += wl;
    sum_l2 += wl * codes[i];
    sum_xl += wl * x[i];
  }
  const float determinant = sum_w * sum_l2 - sum_l * sum_l;
  if (!(determinant > 0.0f)) return false;
  *scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
  *low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
  if (*low > 0.0f) {
    *low = 0.0f;
    *scale = sum_xl / sum_l2;
  }
  return true;
}

AffineFit fit_affine(const float* x, const FitOptions& options) {
  float w[32], codes[32];
  float sum_x2 = 0.0f;
  for (int i = 0; i < 32; ++i) sum_x2 += x[i] * x[i];
  const float rms = std::sqrt(sum_x2 / 32.0f);
  float low = x[0], high = x[0], sum_w = 0.0f, sum_x = 0.0f;
  for (int i = 0; i < 32; ++i) {
    w[i] = rms + std::fabs(x[i]);
    sum_w += w[i];
    sum_x += w[i] * x[i];
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  if (low > 0.0f) low = 0.0f;
  if (high == low) return {0.0f, -low};

  const float top = static_cast<float>(options.top);
  float inverse = top / (high - low);
  float scale = 1.0f / inverse;
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<float>(round_clamped(inverse * (x[i] - low), 0, options.top));
  }
  float best_error = fit_error(x, w, codes, scale, low);
  for (int t = 0; t < options.n_steps; ++t) {
    inverse = (options.first_step + 0.1f * static_cast<float>(t) + top) / (high - low);
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<float>(round_clamped(inverse * (x[i] - low), 0, options.top));
    }
    float new_scale, new_low;
    if (!solve_affine(x, w, codes, sum_w, sum_x, &new_scale, &new_low)) continue;
    const float error = fit_error(x, w, codes, new_scale, new_low);
    if (error < best_error) {
      best_error = error;
      scale = new_scale;
      low = new_low;
    }
  }
  return {scale, -low};
}

// Head and codes of Q4_K and Q5_K: fills b[0..15] and the 256 codes.
bool quantize_affine(const float* x, const FitOptions& options, uint8_t* b, uint8_t* codes) {
  if (std::fabs(signed_max(x, 256)) > kSearchLimit) return false;
  AffineFit fits[8];
  float max_scale = 0.0f, max_minimum = 0.0f;
  for (int g = 0; g < 8; ++g) {
    fits[g] = fit_affine(x + 32 * g, options);
    max_scale = fits[g].scale > max_scale ? fits[g].scale : max_scale;
    max_minimum = fits[g].minimum > max_minimum ? fits[g].minimum : max_minimum;
  }
  const float inverse_scale = max_scale > 0.0f ? 63.0f / max_scale : 0.0f;
  const float inverse_minimum = max_minimum > 0.0f ? 63.0f / max_minimum : 0.0f;
  if (!store_f16_if_finite(b, max_scale / 63.0f)) return false;
  if (!store_f16_if_finite(b + 2, max_minimum / 63.0f)) return false;
  const float d = load_f16(b), m = load_f16(b + 2);
  std::memset(b + 4, 0, 12);
  for (int g = 0; g < 8; ++g) {
    const ScalePair pair{
        static_cast<uint8_t>(round_clamped(inverse_scale * fits[g].scale, 0, 63)),
        static_cast<uint8_t>(round_clamped(inverse_minimum * fits[g].minimum, 0, 63))};
    pack_scale_pair(b + 4, g, pair);
    const float scale = d * static_cast<float>(pair.scale);
    const float minimum = m * static_cast<float>(pair.min);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      codes[i] =
          scale == 0.0f
              ? 0
              : static_cast<uint8_t>(round_clamped((x[i] + minimum) / scale, 0, options.top));
    }
  }
  return true;
}

// x ~ a * code with codes -32..31, weights x^2. Returns a.
float fit_symmetric16(const float* x) {
  const float extreme = signed_max(x, 16);
  if (std::fabs(extreme) < 1e-15f) return 0.0f;
  float best = 0.0f, scale = 0.0f;
  for (int step = 0; step < 19; ++step) {
    // The middle candidate comes first, then -9 .. 9 without it.
    const int t = step == 0 ? 0 : step <= 9 ? step - 10 : step - 9;
    const float c = -(32.0f + 0.1f * static_cast<float>(t)) / extreme;
    float sum_xl = 0.0f, sum_l2 = 0.0f;
    for (int i = 0; i < 16; ++i) {
      const float code = static_cast<float>(round_clamped(c * x[i], -32, 31));
      const float w = x[i] * x[i];
      sum_xl += w * x[i] * code;
      sum_l2 += w * code * code;
    }
    if (sum_l2 > 0.0f && (step == 0 || sum_xl * sum_xl > best * sum_l2)) {
      scale = sum_xl / sum_l2;
      best = scale * sum_xl;
    }
  }
  return scale;
}

}  // namespace

bool quantize_q4_k(const float* x, uint8_t* b) {
  uint8_t codes[256];
  if (!quantize_affine(x, {.top = 15, .first_step = -1.0f, .n_steps = 21}, b, codes)) return false;
  for (int j = 0; j < 4; ++j) {
    for (int l = 0; l < 32; ++l) {
      b[16 + 32 * j + l] = static_cast<uint8_t>(codes[64 * j + l] | codes[64 * j + 32 + l] << 4);
    }
  }
  return true;
}

bool quantize_q5_k(const float* x, uint8_t* b) {
  uint8_t codes[256];
  if (!quantize_affine(x, {.top = 31, .first_step = -0.5f, .n_steps = 16}, b, codes)) return false;
  std::memset(b + 16, 0, 32);
  for (int g = 0; g < 8; ++g) {
    for (int l = 0; l < 32; ++l) {
      b[16 + l] |= static_cast<uint8_t>((codes[32 * g + l] >> 4) << g);
    }
  }
  for (int j = 0; j < 4; ++j) {
    for (int l = 0; l < 32; ++l) {
      b[48 + 32 * j + l] =
          static_cast<uint8_t>((codes[64 * j + l] & 15) | (codes[64 * j + 32 + l] & 15) << 4);
    }
  }
  return true;
}

bool quantize_q6_k(const float* x, uint8_t* b) {
  if (std::fabs(signed_max(x, 256)) > kSearchLimit) return false;
  std::memset(b, 0, 210);
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = fit_symmetric16(x + 16 * g);
  const float extreme = signed_max(scales, 16);
  if (extreme == 0.0f) return true;
  const float c = -128.0f / extreme;
  if (!store_f16_if_finite(b + 208, 1.0f / c)) return false;
  const float d = load_f16(b + 208);
  for (int g = 0; g < 16; ++g) {
    const int code = round_clamped(c * scales[g], -128, 127);
    b[192 + g] = static_cast<uint8_t>(static_cast<int8_t>(code));
    const float scale = d * static_cast<float>(code);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      const int h = i >> 7, k = (i >> 5) & 3, l = i & 31;
      const int v = (scale == 0.0f ? 0 : round_clamped(x[i] / scale, -32, 31)) + 32;
      b[64 * h + 32 * (k & 1) + l] |= static_cast<uint8_t>((v & 15) << (4 * (k >> 1)));
      b[128 + 32 * h + l] |= static_cast<uint8_t>((v >> 4) << (2 * k));
    }
  }
  return true;
}

}  // namespace okibi::blocks
