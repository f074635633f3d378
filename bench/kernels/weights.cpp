#include "kernels/weights.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/f16.h"
#include "tensor/dtype.h"

namespace okibi::bench {
namespace {

// Bytes of a block at which binary16 factors stand; -1 ends the list.
struct ScaleFields {
  DType type;
  int at[3];
};
constexpr ScaleFields kScales[] = {
    {DType::kQ4_0, {0, -1}},    {DType::kQ4_1, {0, 2, -1}}, {DType::kQ5_0, {0, -1}},
    {DType::kQ5_1, {0, 2, -1}}, {DType::kQ8_0, {0, -1}},    {DType::kQ2_K, {80, 82, -1}},
    {DType::kQ3_K, {108, -1}},  {DType::kQ4_K, {0, 2, -1}}, {DType::kQ5_K, {0, 2, -1}},
    {DType::kQ6_K, {208, -1}},  {DType::kIQ2_XXS, {0, -1}}, {DType::kIQ2_XS, {0, -1}},
    {DType::kIQ3_XXS, {0, -1}}, {DType::kIQ1_S, {0, -1}},   {DType::kIQ4_NL, {0, -1}},
    {DType::kIQ3_S, {0, -1}},   {DType::kIQ2_S, {0, -1}},   {DType::kIQ4_XS, {0, -1}},
    {DType::kTQ1_0, {52, -1}},  {DType::kTQ2_0, {64, -1}},  {DType::kQ1_0, {0, -1}},
    {DType::kQ2_0, {0, -1}},
};

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

void put_u16(uint8_t* p, uint16_t v) {
  std::memcpy(p, &v, 2);
}

void set_scales(DType type, uint8_t* block, std::mt19937& rng) {
  const auto factor = [&] {
    const float magnitude = 0.001f + static_cast<float>(rng() % 1000) * 1e-5f;
    return float_to_f16(rng() % 4 == 0 ? -magnitude : magnitude);
  };
  for (const ScaleFields& f : kScales) {
    if (f.type != type) continue;
    for (const int* at = f.at; *at >= 0; ++at) put_u16(block + *at, factor());
  }
  if (type == DType::kMXFP4) block[0] = static_cast<uint8_t>(112 + rng() % 8);
  if (type == DType::kNVFP4) {
    for (int i = 0; i < 4; ++i) block[i] = static_cast<uint8_t>(rng() % 0x60);
  }
  if (type == DType::kIQ1_M) {
    const uint16_t d = factor();
    for (int i = 0; i < 4; ++i) {
      uint8_t* high = block + 48 + 2 * i + 1;
      *high = static_cast<uint8_t>((*high & 15) | ((d >> (4 * i)) & 15) << 4);
    }
  }
}

}  // namespace

Buffer::Buffer(int64_t bytes) {
  const size_t size = static_cast<size_t>(round_up(bytes + 64, 4096));
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(4096, size)));
  std::memset(data_.get(), 0, size);
}
void Buffer::Free::operator()(uint8_t* p) const {
  std::free(p);
}

std::vector<uint8_t> random_weights(int type, int64_t n_out, int64_t n_in, uint32_t seed) {
  const DTypeTraits& traits = traits_of(static_cast<DType>(type));
  std::mt19937 rng(seed);
  std::vector<uint8_t> rows(n_out * row_bytes(traits.type, static_cast<uint64_t>(n_in)));
  if (traits.block_size == 1) {
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (size_t i = 0; i < rows.size(); i += traits.block_bytes) {
      const float v = normal(rng);
      if (traits.type == DType::kF32) std::memcpy(&rows[i], &v, 4);
      if (traits.type == DType::kF16) put_u16(&rows[i], float_to_f16(v));
      if (traits.type == DType::kBF16) put_u16(&rows[i], float_to_bf16(v));
    }
    return rows;
  }
  for (size_t i = 0; i + 4 <= rows.size(); i += 4) {
    const uint32_t v = rng();
    std::memcpy(&rows[i], &v, 4);
  }
  for (size_t i = 0; i < rows.size(); i += traits.block_bytes) {
    set_scales(traits.type, &rows[i], rng);
  }
  return rows;
}

Matrix pack(const cpu::LinearKernels& kernels, const std::vector<uint8_t>& rows, int64_t n_out,
            int64_t n_in) {
  Matrix m;
  const int64_t step = kernels.panel_rows;
  const int64_t row_size = static_cast<int64_t>(rows.size()) / n_out;
  m.n_panels = (n_out + step - 1) / step;
  m.view.n_in = n_in;
  m.view.n_out = n_out;
  m.view.panel_bytes = kernels.panel_bytes(n_in);
  m.memory = Buffer(m.n_panels * m.view.panel_bytes);
  m.view.data = m.memory.data();
  for (int64_t p = 0; p < m.n_panels; ++p) {
    const int64_t n = std::min(step, n_out - p * step);
    kernels.pack(rows.data() + p * step * row_size, n, n_in,
                 m.memory.data() + p * m.view.panel_bytes);
  }
  return m;
}

Inputs random_inputs(const cpu::KernelTable& table, cpu::ActivationFormat format, int64_t n_rows,
                     int64_t n_in, uint32_t seed) {
  Inputs in;
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  cpu::Activations& a = in.view;
  a.x_stride = round_up(n_in, 16);
  in.x = Buffer(n_rows * a.x_stride * 4);
  float* x = in.x.as<float>();
  for (int64_t i = 0; i < n_rows * a.x_stride; ++i) x[i] = normal(rng) * (rng() % 50 ? 1.f : 8.f);
  // A row at the ends of the int8 range, one of zeros.
  for (int64_t k = 0; k < n_in; ++k) {
    if (n_rows > 2) x[a.x_stride + k] = rng() % 2 ? 1.0f : -1.0f;
    if (n_rows > 3) x[2 * a.x_stride + k] = 0.0f;
  }
  a.x = x;
  a.q_stride = round_up(n_in, 64);
  a.d_stride = round_up(n_in / 32, 16);
  a.sums16_stride = round_up(n_in / 16, 32);
  in.q = Buffer(n_rows * a.q_stride);
  in.d = Buffer(n_rows * a.d_stride * 4);
  in.sums = Buffer(n_rows * (a.d_stride * 4 + a.sums16_stride * 2));
  a.q = in.q.as<int8_t>();
  a.d = in.d.as<float>();
  a.sums32 = in.sums.as<int32_t>();
  a.sums16 = in.sums.as<int16_t>();
  for (int64_t r = 0; r < n_rows; ++r) {
    if (format == cpu::ActivationFormat::kQ8B32) {
      table.quantize_q8b32(x + r * a.x_stride, n_in, in.q.as<int8_t>() + r * a.q_stride,
                           in.d.as<float>() + r * a.d_stride,
                           in.sums.as<int32_t>() + r * a.d_stride);
    } else if (format == cpu::ActivationFormat::kQ8B256) {
      table.quantize_q8b256(x + r * a.x_stride, n_in, in.q.as<int8_t>() + r * a.q_stride,
                            in.d.as<float>() + r * a.d_stride,
                            in.sums.as<int16_t>() + r * a.sums16_stride);
    }
  }
  if (table.make_tiles != nullptr && format != cpu::ActivationFormat::kF32) {
    const int64_t n_tiles = cpu::tile_count(n_rows);
    in.tiles = Buffer(cpu::tiles_bytes(format, n_rows, n_in));
    table.make_tiles(a, format, n_rows, n_in, 0, n_tiles, in.tiles.data());
    a.tiles = {in.tiles.data(), cpu::tile_height(n_rows), n_tiles};
  }
  return in;
}

}  // namespace okibi::bench
