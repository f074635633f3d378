// The class behind cpu_backend.h, private to src/cpu. It owns all memory of the backend, checks
// shapes and splits every operation over threads; the arithmetic is in kernels/.
//
// Thread rule: used by one thread; the pool's workers see it only inside parallel_for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/kernel_table.h"
#include "cpu/weight_arena.h"
#include "ops/kv_layout.h"
#include "ops/ops.h"
#include "platform/file_map.h"
#include "platform/thread_pool.h"

namespace okibi::cpu {

// Raised whenever the arithmetic of a kernel changes, so that saved states are not mixed.
constexpr int kKernelRevision = 3;
// Kernels read whole vectors: every buffer is readable this far past its end.
constexpr uint64_t kReadPast = 64;
// The tallest panel of any layout.
constexpr int64_t kMaxPanelRows = 64;

class CpuBackend final : public ops::Backend {
 public:
  CpuBackend(const KernelTable& kernels, int n_threads, bool f32_activations);

  std::string_view name() const override { return "cpu"; }
  std::string numeric_identity() const override;
  std::string describe_weight(ops::Weight w) const override;
  ExecTrace& trace() override { return trace_; }

  Result<ops::Weight> add_weight(const ops::WeightSource& source) override;
  uint64_t packed_bytes(const ops::WeightSource& source) const override;
  Result<ops::Vector> add_vector(std::span<const float> values) override;
  Result<ops::Rows> add_rows(int64_t max_rows, int64_t cols) override;
  Result<ops::Rows> add_input_rows(int64_t max_rows, int64_t cols,
                                   std::span<const ops::Weight> readers) override;
  ops::Rope add_rope(const ops::RopeConfig& config) override;
  Status set_kv(const ops::KvConfig& config) override;
  Status set_state(const ops::StateConfig& config) override;
  Status set_view_attention(int64_t max_rows, int32_t n_heads, int32_t head_dim) override;

  void copy_page(ops::PageId src, ops::PageId dst, int32_t n_tokens) override;
  void discard_page(ops::PageId page) override;
  void zero_slot(ops::SlotId slot) override;
  void copy_slot(ops::SlotId src, ops::SlotId dst) override;
  void download_slot(ops::SlotId slot, std::span<float> out) const override;
  void upload_slot(ops::SlotId slot, std::span<const float> in) override;
  std::span<const float> read(ops::Rows rows, int64_t row) const override;
  void write(ops::Rows rows, int64_t row, std::span<const float> values) override;

  void begin_step(const ops::BatchPlan& plan) override;
  void end_step() override;
  void set_layer(int32_t layer, const char* kind) override;

  void embed(ops::Weight table, ops::Rows out) override;
  void rms_norm(ops::Rows in, ops::Vector gamma, float eps, ops::Rows out) override;
  void norm_heads(ops::Rows inout, ops::Vector gamma, float eps) override;
  void project(ops::Rows in, std::span<const ops::Weight> weights,
               std::span<const ops::Rows> outs) override;
  void project_add(ops::Rows in, ops::Weight weight, ops::Rows inout) override;
  void rope(ops::Rows inout, ops::Rope rope) override;
  void kv_append(int32_t kv_layer, ops::Rows k, ops::Rows v) override;
  void attend(int32_t kv_layer, ops::Rows q, int32_t n_heads, float scale, ops::Rows out) override;
  void short_conv(uint64_t state_offset, ops::Rows bcx, ops::Vector kernel, ops::Rows out) override;
  void silu_mul(ops::Rows gate, ops::Rows up, ops::Rows out) override;
  void gather_outputs(ops::Rows in, ops::Rows out) override;
  void logits(ops::Rows in, ops::Weight weight, ops::Rows out) override;

  void put_embeddings(ops::Rows inout) override;
  void add_bias(ops::Rows inout, ops::Vector bias) override;
  void layer_norm(ops::Rows inout, ops::Vector bias, ops::Vector gamma, ops::Vector beta, float eps,
                  ops::Rows out) override;
  void gelu(ops::Rows inout, ops::Vector bias, ops::Gelu kind) override;
  void feed_forward(ops::Rows in, ops::Weight up, ops::Vector bias, ops::Gelu kind,
                    ops::Rows hidden, ops::Weight down, ops::Rows inout) override;
  void attend_view(const ops::ViewAttention& a, ops::Rows q, ops::Rows k, ops::Rows v,
                   ops::Rows out) override;
  void project_attend_view(const ops::ViewAttention& a, ops::Rows in,
                           std::span<const ops::Weight, 3> weights, ops::Rows q, ops::Rows k,
                           ops::Rows v, ops::Rows out) override;
  void join_rows(ops::Rows in, ops::Rows out) override;

 private:
  struct PackedWeight {
    PackedMatrix matrix;
    const LinearKernels* kernels = nullptr;
    DType type = DType::kF32;
    std::string name;
    int64_t n_panels = 0;
  };
  struct RowsBuffer {
    MappedBuffer memory;
    int64_t max_rows = 0, cols = 0;
    int64_t stride = 0;       // floats
    int64_t n_valid = 0;      // rows of the step that it holds now
    bool is_rounded = false;  // holds bfloat16 tiles of one part, not floats
    float* row(int64_t r) { return reinterpret_cast<float*>(memory.data()) + r * stride; }
    const float* row(int64_t r) const {
      return reinterpret_cast<const float*>(memory.data()) + r * stride;
    }
  };
  struct RopeTable {
    ops::RopeConfig config;
    std::vector<double> frequencies;  // angle per position of each pair
    std::vector<float> cos_sin;       // of the step's rows, n_rot floats each
    bool ready = false;               // computed in this step
  };
  // One product of a step: a weight, its input and where the result goes.
  struct Product {
    const PackedWeight* weight;
    Activations input;
    float* out = nullptr;
    int64_t out_stride = 0;
    RoundedOutput rounded = {};
  };
  // Query tokens of one sequence that one K/V head serves together.
  struct AttendUnit {
    const ops::SequenceSpan* sequence;
    uint32_t first;  // query, from the sequence's first row of the step
    int32_t n_queries;
    int32_t kv_head;
    int32_t n_partitions;
    int64_t first_job;  // when split over partitions: jobs and records before this unit's
    int64_t first_record;
  };
  // One panel of the output matrix that one output wants, and its labels in label_order_.
  struct LabelPanel {
    int64_t output, panel;
    uint32_t first_label, n_labels;
  };
  struct LabelOrder {
    int64_t output;
    int32_t label;
    uint32_t column;
  };
  struct ViewRows;    // cpu_backend_vision.cpp
  struct ViewTile;    // the same
  struct AttendCall;  // what all units of one attend share; cpu_backend_attend.cpp
  class ZoneTimer;

  const PackedWeight& weight(ops::Weight w) const;
  const std::vector<float>& vector(ops::Vector v) const;
  // Rows of floats; `any_rows` may be rounded.
  RowsBuffer& rows(ops::Rows r);
  const RowsBuffer& rows(ops::Rows r) const;
  RowsBuffer& any_rows(ops::Rows r);
  // Marks `out` as holding as many rows as `in`, after checking its shape.
  RowsBuffer& output(ops::Rows out, int64_t n_rows, int64_t cols);

  const LinearKernels* kernels_for(const ops::WeightSource& source) const;
  Status reserve_scratch();
  Status grow(MappedBuffer& buffer, uint64_t n_bytes, bool huge);

  // for_gemm: in tile order too, where the level wants that.
  Activations quantize(const RowsBuffer& in, int64_t n_rows, ActivationFormat format,
                       bool for_gemm);
  // The rounded rows that `tiles` holds.
  Activations bf16_activations(const uint8_t* tiles, int64_t n_rows) const;
  Activations round_to_bf16(const RowsBuffer& in, int64_t n_rows, ActivationFormat format);
  void quantize_row(const RowsBuffer& in, int64_t row, const Activations& a, ActivationFormat f);
  void run_products(std::span<const Product> products, int64_t n_rows, bool accumulate);
  void run_product_range(const Product& p, int64_t panel_begin, int64_t panel_end,
                         int64_t row_begin, int64_t row_end, int64_t n_rows, bool accumulate,
                         int thread);
  void label_logits(const RowsBuffer& in, const PackedWeight& w, RowsBuffer& out);
  void label_panel(const PackedWeight& w, const Activations& input, const LabelPanel& unit,
                   RowsBuffer& out, int thread);

  const float* rope_rows(RopeTable& table);

  uint8_t* page(ops::PageId id) { return kv_memory_.data() + id * kv_layout_.page_bytes; }
  float* slot(ops::SlotId id);
  const float* slot(ops::SlotId id) const;
  void plan_attend(AttendCall& call);
  bool plan_split(AttendCall& call);
  void attend_partition(const AttendCall& call, const AttendUnit& unit, int32_t partition,
                        int32_t first_query, float* records, int thread);
  void attend_whole(const AttendCall& call, const AttendUnit& unit, int thread);
  void attend_split(const AttendCall& call);
  void attend_view_tile(const ViewTile& tile, int thread);
  void pack_view(const ops::ViewAttention& attention, const ViewRows& in,
                 const ops::SequenceSpan& view);
  void attend_packed_view(float scale, const ops::SequenceSpan& view, RowsBuffer& out);
  bool rounds_view(const ops::ViewAttention& a) const {
    return a.may_round && kernels_.view_attend != nullptr && !f32_activations_;
  }
  void spread_view_rows(const ops::ViewAttention& a, ViewRows& in);

  float* attend_scratch(int thread) {
    return reinterpret_cast<float*>(attend_scratch_.data() + thread * attend_scratch_stride_);
  }
  uint8_t* linear_scratch(int thread) {
    return linear_scratch_.data() + thread * linear_scratch_stride_;
  }

  // fn(row, thread) for every row, over threads when there is enough to do.
  template <typename Fn>
  void for_rows(int64_t n_rows, int64_t floats_per_row, const Fn& fn) {
    // Below some thousand values a hand-over costs more than it saves.
    constexpr int64_t kFloatsPerRange = 8192;
    const int64_t grain = floats_per_row >= kFloatsPerRange ? 1 : kFloatsPerRange / floats_per_row;
    pool_.parallel_for(n_rows, grain, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) fn(r, thread);
    });
  }

  const KernelTable kernels_;
  const bool f32_activations_;
  ThreadPool pool_;
  ExecTrace trace_;
  int32_t layer_ = -1;
  const char* layer_kind_ = "";
  const ops::BatchPlan* plan_ = nullptr;

  WeightArena weight_memory_;
  std::vector<PackedWeight> weights_;
  std::vector<std::vector<float>> vectors_;
  std::vector<RowsBuffer> rows_;
  std::vector<RopeTable> ropes_;

  // Scratch, grown when weights and row buffers are added, never in a step.
  int64_t max_rows_ = 0;
  int64_t max_n_in_ = 0;
  uint64_t linear_scratch_stride_ = 0;
  MappedBuffer q8b32_, q8b256_, linear_scratch_;
  MappedBuffer tiles_[2];          // kQ8B32, kQ8B256
  int64_t max_bf16_n_in_[2] = {};  // kBf16, kBf16Pair
  MappedBuffer bf16_tiles_[2];

  bool has_kv_ = false;
  ops::KvConfig kv_config_;
  ops::KvLayout kv_layout_;
  MappedBuffer kv_memory_;
  int64_t attend_record_offset_ = 0;  // a thread's records behind its kernel scratch, in floats
  uint64_t attend_scratch_stride_ = 0;
  MappedBuffer attend_scratch_, attend_records_;
  std::vector<AttendUnit> attend_units_;

  // attend_view: the step's keys and values, head after head, and each thread's scratch.
  int64_t view_max_rows_ = 0, view_heads_ = 0, view_head_dim_ = 0;
  uint64_t view_scratch_stride_ = 0;
  MappedBuffer view_keys_, view_values_, view_scratch_;
  MappedBuffer view_packed_[3];  // rounded queries, keys and values of a view

  ops::StateConfig state_config_;
  uint64_t slot_floats_ = 0;  // rounded up so that slots begin on cache lines
  MappedBuffer state_memory_;

  // label_logits
  std::vector<LabelOrder> label_order_;
  std::vector<LabelPanel> label_panels_;
};

// Measures one operation while tracing is on.
class CpuBackend::ZoneTimer {
 public:
  ZoneTimer(CpuBackend& backend, Zone zone, const char* detail = nullptr);
  ~ZoneTimer();
  ZoneTimer(const ZoneTimer&) = delete;
  ZoneTimer& operator=(const ZoneTimer&) = delete;

 private:
  CpuBackend& backend_;
  Zone zone_;
  const char* detail_;
  double start_s_ = 0;
};

}  // namespace okibi::cpu
