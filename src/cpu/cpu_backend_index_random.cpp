// Random context: keys, values, index keys and state as if tokens had been run, for measuring at
// depths that would take hours to reach. Every value is a function of the seed and its place, so it
// does not matter in how many calls a context was filled or by how many threads.
//
// Pooled keys are pooled from random keys by the layer's own norm and rotation as soon as a step
// has shown them to index_append; a layer that has not run yet is pooled with gammas of one and
// without rotation, which gives keys of the same size. Run a step first where sets must agree with
// what pooling the kept keys anew would give.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {
namespace {

// What a stream of random values is for.
enum Stream : uint64_t { kKeys = 1, kValues, kIndexKeys, kState };

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t stream_seed(uint64_t seed, Stream stream, uint64_t layer, uint64_t position) {
  return mix(mix(mix(seed ^ stream) + layer) + position);
}

// Uniform values of the given deviation, four from each 64 bits.
void random_row(uint64_t seed, int64_t n, float deviation, float* out) {
  const float scale = deviation * 1.7320508f / 32768.0f;
  for (int64_t i = 0; i < n; i += 4) {
    const uint64_t bits = mix(seed + static_cast<uint64_t>(i));
    float four[4];
    for (int j = 0; j < 4; ++j) {
      const auto word = static_cast<int32_t>(bits >> (16 * j) & 0xffff);
      four[j] = (static_cast<float>(word - 32768) + 0.5f) * scale;
    }
    std::memcpy(out + i, four, static_cast<size_t>(n - i < 4 ? n - i : 4) * sizeof(float));
  }
}

}  // namespace

void CpuBackend::fill_random(const ops::SequenceSpan& s, uint64_t seed) {
  CHECK(plan_ == nullptr, "fill_random inside a step");
  const uint64_t n = uint64_t{s.n_past} + s.n_rows;
  if (state_config_.max_slots > 0) {
    float* state = slot(s.dst_slot);
    const auto n_floats = static_cast<int64_t>(state_config_.floats_per_slot);
    for_rows((n_floats + 4095) / 4096, 4096, [&](int64_t i, int) {
      random_row(stream_seed(seed, kState, static_cast<uint64_t>(i), n),
                 std::min<int64_t>(4096, n_floats - i * 4096), 0.1f, state + i * 4096);
    });
  }
  if (!has_kv_) return;
  CHECK(s.pages.size() * static_cast<uint64_t>(kv_config_.page_tokens) >= n,
        "%llu positions, %zu pages", static_cast<unsigned long long>(n), s.pages.size());
  for (size_t i = 0; i < kv_config_.layers.size(); ++i) {
    const auto layer = static_cast<int32_t>(i);
    fill_random_rows(s, seed, layer);
    if (kv_config_.layers[i].index.valid()) fill_random_index(s, seed, layer);
  }
}

void CpuBackend::fill_random_rows(const ops::SequenceSpan& s, uint64_t seed, int32_t kv_layer) {
  const ops::KvLayerShape& shape = kv_config_.layers[static_cast<size_t>(kv_layer)];
  const ops::KvLayerLayout& layout = kv_layout_.layers[static_cast<size_t>(kv_layer)];
  const auto page_tokens = static_cast<uint64_t>(kv_config_.page_tokens);
  const auto store = kernels_.kv_store[static_cast<size_t>(kv_config_.type)];
  const auto layer = static_cast<uint64_t>(kv_layer);
  for_rows(s.n_rows, int64_t{shape.n_kv_heads} * (shape.k_dim + shape.v_dim),
           [&](int64_t r, int thread) {
             const uint64_t position = s.n_past + static_cast<uint64_t>(r);
             uint8_t* base = page(s.pages[position / page_tokens]);
             float* x = attend_scratch(thread);
             for (int32_t h = 0; h < shape.n_kv_heads; ++h) {
               const uint64_t row = static_cast<uint64_t>(h) * page_tokens + position % page_tokens;
               const uint64_t head = layer << 16 | static_cast<uint64_t>(h);
               random_row(stream_seed(seed, kKeys, head, position), shape.k_dim, 1.0f, x);
               store(x, shape.k_dim, base + layout.k_offset + row * layout.k_row_bytes);
               random_row(stream_seed(seed, kValues, head, position), shape.v_dim, 1.0f, x);
               store(x, shape.v_dim, base + layout.v_offset + row * layout.v_row_bytes);
             }
           });
}

void CpuBackend::fill_random_index(const ops::SequenceSpan& s, uint64_t seed, int32_t kv_layer) {
  const ops::IndexShape& shape = index_shape(kv_layer);
  const ops::IndexKeys& known = index_keys_[static_cast<size_t>(kv_layer)];
  const bool is_known = known.kv_layer == kv_layer;
  const auto block_tokens = static_cast<uint64_t>(shape.block_tokens);
  const uint64_t n_past = s.n_past, n = n_past + s.n_rows;
  const auto key = [&](uint64_t position, float* out) {
    random_row(stream_seed(seed, kIndexKeys, static_cast<uint64_t>(kv_layer), position), shape.dim,
               1.0f, out);
  };
  if (!kv_config_.sparse.keep_pooled) {
    for_rows(s.n_rows, shape.dim, [&](int64_t r, int) {
      const uint64_t position = n_past + static_cast<uint64_t>(r);
      key(position, raw_key(kv_layer, s.pages, position));
    });
  } else {
    const std::vector<float> ones(static_cast<size_t>(shape.dim), 1.0f);
    const uint64_t first = n_past / block_tokens;
    for_rows(static_cast<int64_t>(n / block_tokens - first), int64_t{shape.dim} * 50,
             [&](int64_t i, int thread) {
               const uint64_t block = first + static_cast<uint64_t>(i);
               float* x = select_scratch(thread);
               const float* keys_of_block[kMaxBlockTokens];
               for (uint64_t j = 0; j < block_tokens; ++j) {
                 float* row = x + j * static_cast<uint64_t>(shape.dim);
                 key(block * block_tokens + j, row);
                 keys_of_block[j] = row;
               }
               float* out = pooled_key(kv_layer, s.pages, block);
               if (!is_known) {
                 index_kernels_.mean(keys_of_block, shape.block_tokens, shape.dim, out);
                 kernels_.rms_norm(out, ones.data(), shape.dim, 1e-6f, out);
                 return;
               }
               float cos_sin[kMaxIndexDim];
               ropes_[static_cast<size_t>(known.rope.id)].turn(
                   static_cast<double>(block * block_tokens), cos_sin);
               pool_block(known, keys_of_block, cos_sin, out);
             });
  }
  if (!is_known) return;
  float* state = slot(s.dst_slot) + known.state_offset;
  for (uint64_t j = 0; j + 1 < block_tokens; ++j) {
    float* row = state + j * static_cast<uint64_t>(shape.dim);
    std::memset(row, 0, static_cast<size_t>(shape.dim) * sizeof(float));
    if (n / block_tokens * block_tokens + j < n) key(n / block_tokens * block_tokens + j, row);
  }
}

}  // namespace okibi::cpu
