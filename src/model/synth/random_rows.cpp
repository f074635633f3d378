// See random_rows.h.
#include "model/synth/random_rows.h"

#include <cmath>
#include <cstring>
#include <string>

#include "base/f16.h"
#include "base/hash.h"
#include "tensor/dequantize.h"

namespace okibi::model {
namespace {

// Where a block type keeps its f16 scale and minimum, and the minimum that makes the mean of the
// values zero, in scales. Offsets are those of the format.
struct BlockFields {
  DType type;
  int d_at;
  int m_at = -1;
  float m_per_d = 0.0f;
};
constexpr BlockFields kFields[] = {
    {DType::kQ4_0, 0},           {DType::kQ4_1, 0, 2, -7.5f},
    {DType::kQ5_0, 0},           {DType::kQ5_1, 0, 2, -15.5f},
    {DType::kQ8_0, 0},           {DType::kQ2_K, 80, 82, 1.5f},
    {DType::kQ3_K, 108},         {DType::kQ4_K, 0, 2, 7.5f},
    {DType::kQ5_K, 0, 2, 15.5f}, {DType::kQ6_K, 208},
    {DType::kIQ2_XXS, 0},        {DType::kIQ2_XS, 0},
    {DType::kIQ2_S, 0},          {DType::kIQ3_XXS, 0},
    {DType::kIQ3_S, 0},          {DType::kIQ1_S, 0},
    {DType::kIQ1_M, 48},         {DType::kIQ4_NL, 0},
    {DType::kIQ4_XS, 0},         {DType::kMXFP4, 0},
    {DType::kTQ1_0, 52},         {DType::kTQ2_0, 64},
    {DType::kQ1_0, 0},           {DType::kQ2_0, 0},
};

const BlockFields* find_fields(DType type) {
  for (const BlockFields& fields : kFields) {
    if (fields.type == type) return &fields;
  }
  return nullptr;
}

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// The finaliser of SplitMix64: every bit of the result depends on every bit of x.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;
// Number i of the stream of a key.
uint64_t random_at(uint64_t key, uint64_t i) {
  return mix(key + (i + 1) * kStep);
}

void fill_bits(uint64_t key, uint64_t n_bytes, uint8_t* dst) {
  uint64_t i = 0;
  for (; i + 8 <= n_bytes; i += 8) {
    const uint64_t bits = random_at(key, i / 8);
    std::memcpy(dst + i, &bits, 8);
  }
  if (i < n_bytes) {
    const uint64_t bits = random_at(key, i / 8);
    std::memcpy(dst + i, &bits, n_bytes - i);
  }
}

// Bits that a quantiser would not write, or that would spoil the spread, become ones that it would.
void tame(DType type, uint8_t* block, uint32_t block_bytes) {
  switch (type) {
    case DType::kQ8_0:  // -128 is outside the symmetric range
      for (uint32_t i = 2; i < block_bytes; ++i) block[i] += block[i] == 0x80;
      break;
    case DType::kQ2_K:  // minimum as large as scale, so that every group has mean zero
      for (int i = 0; i < 16; ++i) block[i] = static_cast<uint8_t>((block[i] & 15) * 0x11);
      break;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      // Twelve bytes of 6-bit pairs: scale = minimum, and in 32..63, for every group.
      uint8_t* s = block + 4;
      for (int i = 0; i < 4; ++i) {
        s[i] |= 0xa0;
        s[i + 4] = s[i];
        s[i + 8] = static_cast<uint8_t>((s[i + 8] & 15) * 0x11);
      }
      break;
    }
    case DType::kTQ2_0:  // three of the four codes mean something
      for (int i = 0; i < 64; ++i) {
        block[i] = static_cast<uint8_t>(block[i] & ~(block[i] & (block[i] >> 1) & 0x55));
      }
      break;
    default:
      break;
  }
}

}  // namespace

bool can_synthesize(DType type) {
  return is_float(type) || find_fields(type) != nullptr;
}

Result<RandomRows> RandomRows::create(DType type, float mean, float std_dev, uint64_t seed,
                                      std::string_view tensor_name) {
  RandomRows rows;
  rows.type_ = type;
  rows.tensor_key_ = mix(seed + kStep) ^ fnv1a(bytes_of(tensor_name));
  if (is_float(type)) {
    rows.span_ = std_dev * std::sqrt(12.0f);
    rows.low_ = mean - rows.span_ / 2;
    return rows;
  }
  const BlockFields* fields = find_fields(type);
  if (fields == nullptr) {
    std::string known = "F32, F16, BF16";
    for (const BlockFields& f : kFields) known += ", " + std::string(name_of(f.type));
    return unsupported("random blocks of type " + std::string(name_of(type)) +
                       " cannot be made, expected one of: " + known);
  }
  rows.d_at_ = fields->d_at;
  rows.m_at_ = fields->m_at;

  // The spread of random blocks of scale 1, measured, tells the scale for the wanted spread.
  constexpr uint64_t kSampleBlocks = 64;
  const bool is_exponent = type == DType::kMXFP4;
  rows.scales_.assign(
      16, {is_exponent ? uint16_t{128} : float_to_f16(1.0f), float_to_f16(fields->m_per_d)});
  const DTypeTraits& traits = traits_of(type);
  const uint64_t n = kSampleBlocks * traits.block_size;
  std::vector<uint8_t> bytes(kSampleBlocks * traits.block_bytes);
  std::vector<float> values(n);
  rows.fill_blocks(1, n, bytes.data());
  dequantize_row(type, bytes.data(), static_cast<int64_t>(n), values.data());
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  const double scale = std_dev / std::sqrt(sum / static_cast<double>(n));

  for (size_t i = 0; i < rows.scales_.size(); ++i) {
    // Neighbouring blocks differ, so that a kernel which takes the wrong one is found.
    const float d = static_cast<float>(scale * (0.8 + 0.025 * static_cast<double>(i)));
    rows.scales_[i].d =
        is_exponent ? static_cast<uint16_t>(std::lround(128.0 + std::log2(d))) : float_to_f16(d);
    rows.scales_[i].m = float_to_f16(d * fields->m_per_d);
  }
  return rows;
}

void RandomRows::fill(uint64_t row, uint64_t n, uint8_t* dst) const {
  const uint64_t key = mix(tensor_key_ + row * kStep);
  if (is_float(type_)) {
    fill_floats(key, n, dst);
  } else {
    fill_blocks(key, n, dst);
  }
}

void RandomRows::fill_floats(uint64_t key, uint64_t n, uint8_t* dst) const {
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t bits = random_at(key, i / 2);
    const uint32_t half = static_cast<uint32_t>(i % 2 == 0 ? bits : bits >> 32);
    // 24 bits, exact in a float.
    const float value = low_ + span_ * (static_cast<float>(half >> 8) * 0x1p-24f);
    if (type_ == DType::kF32) {
      std::memcpy(dst + 4 * i, &value, 4);
    } else {
      const uint16_t h = type_ == DType::kF16 ? float_to_f16(value) : float_to_bf16(value);
      std::memcpy(dst + 2 * i, &h, 2);
    }
  }
}

void RandomRows::fill_blocks(uint64_t key, uint64_t n, uint8_t* dst) const {
  const DTypeTraits& traits = traits_of(type_);
  const uint64_t n_blocks = n / traits.block_size;
  fill_bits(key, n_blocks * traits.block_bytes, dst);
  for (uint64_t b = 0; b < n_blocks; ++b) {
    uint8_t* block = dst + b * traits.block_bytes;
    tame(type_, block, traits.block_bytes);
    // The bits under the scale are random too: they choose it.
    set_scales(block, scales_[block[d_at_] & 15]);
  }
}

void RandomRows::set_scales(uint8_t* block, const Scales& scales) const {
  if (type_ == DType::kMXFP4) {
    block[d_at_] = static_cast<uint8_t>(scales.d);
    return;
  }
  if (type_ == DType::kIQ1_M) {
    // The scale hides in the top nibbles of four 16-bit words.
    for (int i = 0; i < 4; ++i) {
      uint8_t& high = block[d_at_ + 2 * i + 1];
      high = static_cast<uint8_t>((high & 15) | ((scales.d >> (4 * i) & 15) << 4));
    }
    return;
  }
  std::memcpy(block + d_at_, &scales.d, 2);
  if (m_at_ >= 0) std::memcpy(block + m_at_, &scales.m, 2);
}

}  // namespace okibi::model
