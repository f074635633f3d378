// The class behind cpu_backend.h, private to src/cpu. It owns all memory of the backend, checks
// shapes and splits every operation over threads; the arithmetic is in kernels/.
//
// Thread rule: used by one thread; the pool's workers see it only inside parallel_for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/experts_kernels.h"
#include "cpu/index_kernels.h"
#include "cpu/kernel_table.h"
#include "cpu/make_recurrent.h"
#include "cpu/weight_arena.h"
#include "ops/kv_layout.h"
#include "ops/ops.h"
#include "platform/file_map.h"
#include "platform/thread_pool.h"

namespace okibi::cpu {

// Raised whenever the arithmetic of a kernel changes, so that saved states are not mixed.
constexpr int kKernelRevision = 4;
// Kernels read whole vectors: every buffer is readable this far past its end.
constexpr uint64_t kReadPast = 64;
// The shortest range of panels that a thread takes: some microseconds of reading.
constexpr int64_t kMinRangeBytes = 32 << 10;
// The tallest panel of any layout.
constexpr int64_t kMaxPanelRows = 64;

class CpuBackend final : public ops::Backend {
 public:
  CpuBackend(CpuLevel level, int n_threads, ActivationType activations);

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

  Status set_experts(const ops::ExpertsConfig& config) override;
  Result<ops::NgramTable> add_ngram_table(const ops::NgramTableSource& source) override;

  void copy_page(ops::PageId src, ops::PageId dst, int32_t n_tokens) override;
  void discard_page(ops::PageId page) override;
  void zero_slot(ops::SlotId slot) override;
  void copy_slot(ops::SlotId src, ops::SlotId dst) override;
  void fill_random(const ops::SequenceSpan& sequence, uint64_t seed) override;
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
  void keep_tails(uint32_t n_before, std::span<const ops::Rows> inouts) override;
  void silu_mul(ops::Rows gate, ops::Rows up, ops::Rows out) override;
  void gather_outputs(ops::Rows in, ops::Rows out) override;
  void logits(ops::Rows in, ops::Weight weight, ops::Rows out) override;

  void rms_norm_groups(ops::Rows in, ops::Vector gamma, int32_t n_groups, float eps,
                       ops::Rows out) override;
  void spread_streams(ops::Rows in, ops::Rows out) override;
  void silu(ops::Rows inout, float scale) override;
  void mix_streams(ops::Rows normed, ops::Rows mix, ops::Rows out) override;
  void inject_streams(ops::Rows y, ops::Rows strength, ops::Rows inout) override;
  void sigmoid_mul(ops::Rows gate, ops::Rows inout) override;
  void causal_conv(uint64_t state_offset, ops::Rows in, ops::Vector kernel, ops::Rows out) override;
  void delta_rule(const ops::DeltaRule& rule, ops::Rows qkv, ops::Rows alpha, ops::Rows beta,
                  ops::Rows out) override;
  void gated_norm(ops::Rows gate, ops::GateKind kind, ops::Vector gamma, float eps,
                  ops::Rows inout) override;
  void moe(ops::Rows in, ops::Rows router, const ops::Experts& experts, ops::Rows out) override;
  void add_gated(ops::Rows in, ops::Rows gate, ops::Rows inout) override;
  void ngram_prefetch(ops::NgramTable table) override;
  void ngram_embed(ops::NgramTable table, ops::Rows out) override;
  void ngram_mix(const ops::NgramMix& mix, ops::Rows key, ops::Rows value,
                 ops::Rows inout) override;
  void index_append(const ops::IndexKeys& keys, ops::Rows k) override;
  void select_blocks(int32_t kv_layer, ops::Rows q) override;
  void attend_selected(int32_t kv_layer, ops::Rows q, int32_t n_heads, float scale,
                       ops::Rows out) override;
  std::vector<uint32_t> selected_positions(int32_t kv_layer, uint32_t row) const override;

  void put_embeddings(ops::Rows inout) override;
  void add_bias(ops::Rows inout, ops::Vector bias) override;
  void layer_norm(ops::Rows inout, ops::Vector bias, ops::Vector gamma, ops::Vector beta, float eps,
                  ops::Rows out) override;
  void gelu(ops::Rows inout, ops::Vector bias, ops::Gelu kind) override;
  void gated_feed_forward(ops::Rows in, ops::Weight gate, ops::Weight up, ops::Rows hidden,
                          ops::Rows hidden2, ops::Weight down, ops::Rows inout) override;
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
    int64_t n_panels = 0;    // of one matrix
    int64_t n_matrices = 1;  // one behind the other, each in panels of its own
    int64_t matrix_bytes() const { return n_panels * matrix.panel_bytes; }
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
    // Cosines, then sines of all pairs at a position. (n_rot)
    void turn(double position, float* out) const;
  };
  // The plan of the rows that keep_tails left, and what it points to.
  struct Tails {
    ops::BatchPlan plan;
    std::vector<ops::SequenceSpan> sequences;
    std::vector<int32_t> positions;
    std::vector<uint32_t> row_sequence, output_rows;
    std::vector<uint32_t> n_kept;  // of each sequence
    void begin(const ops::BatchPlan& whole);
  };
  // One product of a step: a weight, its input and where the result goes.
  struct Product {
    const PackedWeight* weight;
    Activations input;
    float* out = nullptr;
    int64_t out_stride = 0;
    RoundedOutput rounded = {};
    int64_t matrix = 0;  // of the weight's
  };
  // The pairs of one expert, and the products of all of them. A pair is a row of the step and an
  // expert that it wants; its place is its number in the order of experts.
  struct ExpertGroup {
    int32_t expert;
    int64_t first, n_pairs;  // places
    int64_t first_tile;      // in the wave
  };
  struct ExpertProduct {
    Product product;
    int64_t n_rows;
    int64_t first_panel;  // in the list of all products' panels
  };
  struct ExpertStrip {  // up to a tile's rows of a group
    uint32_t group;
    int64_t first, n_rows;  // in the group
    int64_t tile;
  };
  // Memory and lists of `moe`, all of them grown by set_experts.
  struct ExpertsWork {
    ops::ExpertsConfig config;
    std::vector<float> probabilities;  // of all experts, for each thread
    int64_t probability_stride = 0;
    std::vector<int32_t> chosen;                 // (row, n_used) in the order of p
    std::vector<float> weights;                  // the same
    std::vector<int64_t> places;                 // the same
    std::vector<int64_t> rows;                   // of the step, by place
    std::vector<int64_t> next;                   // place, by expert
    std::vector<ExpertGroup> groups;             // of the step
    std::vector<ExpertStrip> strips;             // of a wave
    std::vector<ExpertProduct> products;         // the same
    RowsBuffer gate, up;                         // the same
    RowsBuffer results;                          // by place
    MappedBuffer gathered[kNActivationFormats];  // rows of a wave, before gate and before down
    MappedBuffer tiles[kNActivationFormats];
  };
  struct ExpertWave;  // cpu_backend_experts.cpp
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
  // What select_blocks chose on one layer, until the next step begins.
  struct Selection {
    uint64_t step = 0;  // that it belongs to
    int32_t n_blocks = 0;
    // Positions up to each row. With at most n_blocks complete blocks a row has all of them;
    std::vector<uint32_t> n_positions;
    std::vector<uint32_t> blocks;  // else these: (rows, n_blocks), ascending
  };
  struct SelectCall;  // cpu_backend_index_select.cpp
  // Query rows of one sequence against a range of its blocks.
  struct SelectUnit {
    const ops::SequenceSpan* sequence;
    uint32_t first;  // row, from the sequence's first of the step
    int32_t n_rows;
    int64_t block_begin, block_end;
    int32_t n_ranges, range;  // of the tile of rows
    int64_t first_record;     // where there are several ranges
  };
  struct ListCall;    // cpu_backend_index_attend.cpp
  struct ListPart;    // the same
  struct ViewRows;    // cpu_backend_vision.cpp
  struct ViewTile;    // the same
  struct AttendCall;  // what all units of one attend share; cpu_backend_attend.cpp
  struct DeltaCall;   // the same of a delta_rule; cpu_backend_recurrent.cpp
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
  void pack_panels(const ops::WeightSource& source, const PackedWeight& p, uint8_t* panels);
  Status reserve_scratch();
  Status grow(MappedBuffer& buffer, uint64_t n_bytes, bool huge);

  // for_gemm: in tile order too, where the level wants that.
  Activations quantize(const RowsBuffer& in, int64_t n_rows, ActivationFormat format,
                       bool for_gemm);
  // The rounded rows that `tiles` holds.
  Activations bf16_activations(const uint8_t* tiles, int64_t n_rows) const;
  void round_rows(const RowsBuffer& in, int64_t n_rows, int64_t n_parts, uint8_t* tiles);
  Activations round_to_bf16(const RowsBuffer& in, int64_t n_rows, ActivationFormat format);
  // n_in values into row `row` of a.
  void quantize_row(const float* x, int64_t n_in, int64_t row, const Activations& a,
                    ActivationFormat format);
  // For operations that need every row of the step.
  void check_all_rows() const;
  // The weight is no row of experts, which only `moe` takes.
  static void check_single(const PackedWeight& w);
  static bool uses_gemm(const LinearKernels& k, int64_t n_rows) {
    return n_rows >= k.gemm_min_rows;
  }
  void run_bf16_products(std::span<const Product> products, int64_t n_rows, int64_t n_panels,
                         bool accumulate);
  void run_products(std::span<const Product> products, int64_t n_rows, bool accumulate);
  bool takes_bf16(ops::Weight w) const;
  void rise_and_fall(const RowsBuffer& input, Product rise, RowsBuffer& between,
                     const PackedWeight& down, ops::Rows inout);
  void run_product_range(const Product& p, int64_t panel_begin, int64_t panel_end,
                         int64_t row_begin, int64_t row_end, int64_t n_rows, bool accumulate,
                         int thread);
  void label_logits(const RowsBuffer& in, const PackedWeight& w, RowsBuffer& out);
  void label_panel(const PackedWeight& w, const Activations& input, const LabelPanel& unit,
                   RowsBuffer& out, int thread);

  Status reserve_expert_rows(RowsBuffer& buffer, int64_t n_rows, int64_t cols);
  void route_experts(const RowsBuffer& router, int64_t n_rows, const ops::Experts& experts);
  void choose_experts(const float* p, int64_t row, const ops::Experts& experts);
  void group_pairs(int64_t n_rows, int32_t n_used);
  void run_wave(ExpertWave& wave);
  void gather_inputs(ExpertWave& wave);
  void finish_hidden(ExpertWave& wave);
  void copy_activations(const Activations& from, int64_t from_row, const Activations& to,
                        int64_t to_row, int64_t n_in);
  Activations lay_out_wave(ActivationFormat format, int64_t n_in, int64_t n_rows);
  void tile_strip(const ExpertStrip& strip, Activations wave_rows, ActivationFormat format,
                  int64_t n_in, int64_t first_place);
  Activations group_rows(const ExpertGroup& group, const Activations& wave_rows,
                         ActivationFormat format, int64_t n_in, int64_t first_place);
  void run_expert_products();
  void add_weighted(int64_t n_rows, int32_t n_used, RowsBuffer& out);

  const ops::NgramTableSource& ngram_table(ops::NgramTable table) const;
  // Calls fn(head, bytes of its row) for the heads of row `row` of the step.
  template <typename Fn>
  void for_ngram_rows(const ops::NgramTableSource& source, uint32_t row, const Fn& fn) const;

  const float* rope_rows(RopeTable& table);

  // Sparse attention: keys (cpu_backend_index.cpp),
  Status set_index(const ops::KvConfig& config);
  Status set_index_scratch(int64_t largest_k, int64_t largest_dim, int64_t smallest_block);
  const ops::IndexShape& index_shape(int32_t kv_layer) const;
  float* pooled_key(int32_t kv_layer, std::span<const ops::PageId> pages, uint64_t block);
  float* raw_key(int32_t kv_layer, std::span<const ops::PageId> pages, uint64_t position);
  void copy_index(ops::PageId src, ops::PageId dst, int32_t n_tokens);
  void discard_index(ops::PageId page);
  void pool_block(const ops::IndexKeys& keys, const float* const* rows, const float* cos_sin,
                  float* out) const;
  void append_index_rows(const ops::IndexKeys& keys, const RowsBuffer& in,
                         const ops::SequenceSpan& s);
  void pool_again(int32_t kv_layer);
  // selection (cpu_backend_index_select.cpp),
  static int64_t candidate_capacity(int64_t k);
  static int64_t select_scratch_floats(int64_t k, int64_t dim);
  static int64_t select_record_bytes(int64_t k, int n_threads);
  // Leading rows of a sequence that attend to everything before them.
  uint32_t n_dense_rows(const ops::IndexShape& shape, const ops::SequenceSpan& s) const;
  void plan_select(const SelectCall& call);
  void score_blocks(const SelectCall& call, const SelectUnit& unit, int64_t first, int32_t n,
                    float* scores, float* scratch);
  void select_unit(const SelectCall& call, const SelectUnit& unit, int thread);
  void merge_ranges(const SelectCall& call, const SelectUnit& first, int32_t row, int thread);
  void best_cells(const SelectCall& call, const SelectUnit& tile, int32_t row, int thread);
  void select_cells(const SelectCall& call);
  float* select_scratch(int thread) {
    return reinterpret_cast<float*>(select_scratch_.data() + thread * select_scratch_stride_);
  }
  static uint32_t* chosen(Selection& selection, uint32_t row) {
    return selection.blocks.data() + uint64_t{row} * static_cast<uint64_t>(selection.n_blocks);
  }
  // A count in 64 bytes, k scores, k blocks.
  uint8_t* select_record(int32_t k, int64_t i) {
    return select_records_.data() + i * (2 * int64_t{k} + 16) * 4;
  }
  // attention (cpu_backend_index_attend.cpp),
  // Queries that walk their lists side by side: their partitions, where they are the same blocks,
  // are read from the second-level cache.
  static constexpr int64_t kListTileRows = 8;
  static constexpr int64_t kMaxGroup = 64;  // query heads of a K/V head
  void attend_run(const AttendArgs& a, std::span<const KvRun> next) const;
  int32_t list_runs(const ListCall& call, const ListPart& part, KvRun* runs);
  void attend_list_part(const ListCall& call, const ListPart& part, std::span<const KvRun> runs,
                        std::span<const KvRun> next, float* records, int thread);
  template <typename PartOf, typename Fn>
  void walk_list_parts(const ListCall& call, int64_t begin, int64_t end, const PartOf& part_of,
                       const Fn& fn);
  void attend_list_tile(const ListCall& call, std::span<const uint32_t> tile, int32_t kv_head,
                        int thread);
  float* list_records(int thread) {
    return reinterpret_cast<float*>(list_records_.data() + thread * list_records_stride_);
  }
  int32_t n_list_partitions(const ListCall& call, int64_t row) const;
  void finish_list(const ListCall& call, int64_t row, int32_t kv_head, const float* totals);
  void attend_lists_split(const ListCall& call, std::span<const uint32_t> rows_of_lists);
  // random context (cpu_backend_index_random.cpp).
  void fill_random_rows(const ops::SequenceSpan& s, uint64_t seed, int32_t kv_layer);
  void fill_random_index(const ops::SequenceSpan& s, uint64_t seed, int32_t kv_layer);

  uint8_t* page(ops::PageId id) { return kv_memory_.data() + id * kv_layout_.page_bytes; }
  float* slot(ops::SlotId id);
  const float* slot(ops::SlotId id) const;
  // attend for the leading rows of each sequence that have at most max_positions.
  void attend_dense(int32_t kv_layer, ops::Rows q, int32_t n_heads, float scale, ops::Rows out,
                    int64_t max_positions);
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
    return a.may_round && kernels_.view_attend != nullptr && !is_exact();
  }
  void spread_view_rows(const ops::ViewAttention& a, ViewRows& in);
  // `result` may be in.q.
  void attend_rows(const ops::ViewAttention& a, ViewRows& in, RowsBuffer& result);

  const float* conv_taps(ops::Vector kernel, int64_t d, int64_t n_taps);
  void check_delta(const ops::DeltaRule& rule, const RowsBuffer& qkv, const RowsBuffer& alpha,
                   const RowsBuffer& beta);
  void delta_unit(const DeltaCall& call, int64_t unit, bool has_next);
  void check_ngram_mix(const ops::NgramMix& mix, const RowsBuffer& key, const RowsBuffer& value,
                       const RowsBuffer& inout);

  // Weights dequantised exactly, activations kept in float32.
  bool is_exact() const { return activations_ == ActivationType::kF32; }
  const char* name_of_activations() const;

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
    pool_.parallel_for_at_home(n_rows, grain, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) fn(r, thread);
    });
  }

  const KernelTable kernels_;
  const StreamKernels stream_kernels_;
  const RecurrentKernels recurrent_kernels_;
  const ExpertsKernels experts_kernels_;
  const IndexKernels index_kernels_;
  const ActivationType activations_;
  ThreadPool pool_;
  ExecTrace trace_;
  int32_t layer_ = -1;
  const char* layer_kind_ = "";
  const ops::BatchPlan* plan_ = nullptr;  // the engine's, or tails_.plan
  Tails tails_;
  uint64_t n_steps_ = 0;

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

  // Sparse attention: pooled and raw index keys, and each thread's scratch.
  MappedBuffer pooled_keys_, raw_keys_;
  std::vector<ops::IndexKeys> index_keys_;  // per K/V layer, as index_append last had them
  std::vector<Selection> selections_;       // per K/V layer
  uint64_t select_scratch_stride_ = 0;
  MappedBuffer select_scratch_, select_records_;
  uint64_t list_records_stride_ = 0;
  MappedBuffer list_records_;
  std::vector<SelectUnit> select_units_;
  // Where pooled keys are not kept: cosines and sines at the first positions of blocks.
  MappedBuffer block_turns_;
  int64_t n_block_turns_ = 0;
  int32_t turned_rope_ = -1, turned_block_ = 0;
  // Where cells are selected: scores of a tile's blocks, and each thread's cells.
  MappedBuffer block_scores_, cells_;
  uint64_t cells_stride_ = 0;
  std::vector<uint32_t> list_rows_;  // of the step, that select

  // attend_view: the step's keys and values, head after head, and each thread's scratch.
  int64_t view_max_rows_ = 0, view_heads_ = 0, view_head_dim_ = 0;
  uint64_t view_scratch_stride_ = 0;
  MappedBuffer view_keys_, view_values_, view_scratch_;
  MappedBuffer view_packed_[3];  // rounded queries, keys and values of a view

  ops::StateConfig state_config_;
  uint64_t slot_floats_ = 0;  // rounded up so that slots begin on cache lines
  MappedBuffer state_memory_;

  // Recurrent operations: kernels of convolutions by tap (as many as vectors, empty until used),
  // the rows of a delta rule and the gates of n-grams. Grown on first use.
  std::vector<std::vector<float>> conv_taps_;
  MappedBuffer delta_prepared_;
  std::vector<float> ngram_gates_;
  bool has_experts_ = false;
  ExpertsWork experts_;

  std::vector<ops::NgramTableSource> ngram_tables_;
  std::vector<std::pair<size_t, const uint8_t*>> ngram_rows_;  // of a step: head, its row

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
