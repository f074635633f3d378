// Attention over one partition of a query's list, the merge of partitions, and the storage of keys
// and values. The order of every sum is stated at AttendArgs in cpu/kernel_table.h.
#include <cstring>

#include "cpu/kernels/reference/nonlinear.h"
#include "cpu/kernels/reference/scalar_math.h"

namespace okibi::cpu::reference {
namespace {

constexpr int kBlock = 32;  // q8_0: a float16 scale, then 32 bytes
constexpr int kBlockBytes = 34;

void store_f32(const float* x, int64_t n, uint8_t* dst) {
  std::memcpy(dst, x, static_cast<size_t>(n) * sizeof(float));
}

void store_f16(const float* x, int64_t n, uint8_t* dst) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t h = float_to_f16(x[i]);
    std::memcpy(dst + 2 * i, &h, sizeof h);
  }
}

// d = max|x| / 127; q = x * (127 / max|x|) rounded to the nearest even integer.
void store_q8_0(const float* x, int64_t n, uint8_t* dst) {
  constexpr float kRound = 0x1.8p23f;
  for (int64_t b = 0; b < n / kBlock; ++b, x += kBlock, dst += kBlockBytes) {
    float largest = 0.0f;
    for (int i = 0; i < kBlock; ++i) {
      const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
      if (magnitude > largest) largest = magnitude;
    }
    const bool tiny = largest < 1e-30f;
    const float inverse = tiny ? 0.0f : 127.0f / largest;
    const uint16_t d = tiny ? uint16_t{0} : float_to_f16(largest / 127.0f);
    std::memcpy(dst, &d, sizeof d);
    for (int i = 0; i < kBlock; ++i) {
      const float q = (x[i] * inverse + kRound) - kRound;
      dst[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(q));
    }
  }
}

template <int kType>
constexpr int64_t row_size(int64_t n) {
  return kType == kKvF32 ? 4 * n : kType == kKvF16 ? 2 * n : n / kBlock * kBlockBytes;
}

// A stored row as floats.
template <int kType>
void read_row(const uint8_t* row, int32_t n, float* x) {
  for (int32_t i = 0; i < n; ++i) {
    uint16_t h;
    if constexpr (kType == kKvF32) {
      std::memcpy(x + i, row + 4 * i, sizeof(float));
    } else if constexpr (kType == kKvF16) {
      std::memcpy(&h, row + 2 * i, sizeof h);
      x[i] = f16_to_float(h);
    } else {
      const uint8_t* block = row + i / kBlock * kBlockBytes;
      std::memcpy(&h, block, sizeof h);
      x[i] = f16_to_float(h) * static_cast<float>(static_cast<int8_t>(block[2 + i % kBlock]));
    }
  }
}

float dot(const float* a, const float* b, int32_t n) {
  float lanes[kLanes] = {};
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] += a[i] * b[i];
  return sum_lanes(lanes);
}

// Turns n scores into weights; the record's m and l.
void softmax(float* scores, int32_t n, float* record) {
  float m = scores[0];
  for (int32_t j = 1; j < n; ++j) m = scores[j] > m ? scores[j] : m;
  float l[kLanes] = {};
  for (int32_t j = 0; j < n; ++j) {
    scores[j] = exp_nonpositive(scores[j] - m);
    l[j % kLanes] += scores[j];
  }
  record[0] = m;
  record[1] = sum_lanes(l);
}

// fn(query row, its record) for every query token that sees entry j, and every head.
template <typename Fn>
void for_query_rows(const AttendArgs& a, int32_t j, const Fn& fn) {
  for (int32_t t = 0; t < a.n_queries; ++t) {
    if (j >= a.n_keys[t]) continue;
    for (int32_t h = 0; h < a.n_heads; ++h) {
      fn(t, h, a.scratch + (int64_t{t} * a.n_heads + h) * kAttendPartition,
         a.records + t * a.record_query_stride + h * a.record_head_stride);
    }
  }
}

template <int kType>
void attend(const AttendArgs& a) {
  // Behind the scores of every query row; see attend_scratch_floats.
  float* row = a.scratch + int64_t{a.n_queries} * a.n_heads * kAttendPartition;
  int32_t j = 0;
  for (int32_t r = 0; r < a.n_runs; ++r) {
    for (int32_t i = 0; i < a.runs[r].n; ++i, ++j) {
      read_row<kType>(a.runs[r].k + i * row_size<kType>(a.k_dim), a.k_dim, row);
      for_query_rows(a, j, [&](int32_t t, int32_t h, float* scores, float*) {
        const float* q = a.q + t * a.q_query_stride + h * a.q_head_stride;
        scores[j] = dot(q, row, a.k_dim) * a.scale;
      });
    }
  }
  for_query_rows(a, 0, [&](int32_t t, int32_t, float* scores, float* record) {
    softmax(scores, a.n_keys[t], record);
    for (int32_t i = 0; i < a.v_dim; ++i) record[16 + i] = 0.0f;
  });
  j = 0;
  for (int32_t r = 0; r < a.n_runs; ++r) {
    for (int32_t i = 0; i < a.runs[r].n; ++i, ++j) {
      read_row<kType>(a.runs[r].v + i * row_size<kType>(a.v_dim), a.v_dim, row);
      for_query_rows(a, j, [&](int32_t, int32_t, const float* scores, float* record) {
        for (int32_t d = 0; d < a.v_dim; ++d) record[16 + d] += scores[j] * row[d];
      });
    }
  }
}

void attend_merge(float* total, const float* part, int32_t v_dim) {
  const float m = part[0] > total[0] ? part[0] : total[0];
  const float old_weight = exp_nonpositive(total[0] - m);
  const float new_weight = exp_nonpositive(part[0] - m);
  total[0] = m;
  total[1] = total[1] * old_weight + part[1] * new_weight;
  for (int32_t i = 16; i < 16 + v_dim; ++i) {
    total[i] = total[i] * old_weight + part[i] * new_weight;
  }
}

void attend_finish(const float* total, int32_t v_dim, float* out) {
  for (int32_t i = 0; i < v_dim; ++i) out[i] = total[16 + i] / total[1];
}

}  // namespace

void install_attend(KernelTable& table) {
  table.kv_store[kKvF32] = store_f32;
  table.kv_store[kKvF16] = store_f16;
  table.kv_store[kKvQ8_0] = store_q8_0;
  table.attend[kKvF32] = attend<kKvF32>;
  table.attend[kKvF16] = attend<kKvF16>;
  table.attend[kKvQ8_0] = attend<kKvQ8_0>;
  table.attend_name[kKvF32] = "reference.attend_f32";
  table.attend_name[kKvF16] = "reference.attend_f16";
  table.attend_name[kKvQ8_0] = "reference.attend_q8_0";
  table.attend_merge = attend_merge;
  table.attend_finish = attend_finish;
}

}  // namespace okibi::cpu::reference
