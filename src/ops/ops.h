// The operations that model families are written in, and the memory they work on: the contract
// between models and backends. ops.md states shapes, aliasing and tolerances in full.
//
// Conventions. Activations are float32, row-major, one row per token of the step; a `Rows` handle
// stands for (max_rows, cols) of which the first BatchPlan::n_rows count, or those that keep_tails
// left. Weights follow GGUF: a matrix with n_in, n_out computes y[o] = sum_i W[o][i] x[i]. Every
// operation treats rows independently, except where it names state or keys of the row's own
// sequence, and a row's result has the same bits whatever other rows are present and however many
// threads run (promise P1).
// Preconditions are bugs when broken (CHECK); only memory operations can fail.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "okibi/status.h"
#include "ops/batch_plan.h"
#include "ops/handles.h"
#include "ops/long_context.h"
#include "tensor/dtype.h"

namespace okibi::ops {

// A matrix as it stands in a file: n_out rows of row_bytes(type, n_in) bytes.
struct WeightSource {
  std::string_view name;  // for messages
  DType type = DType::kF32;
  int64_t n_in = 0, n_out = 0;
  const uint8_t* data = nullptr;
  float scale = 1.0f;  // multiplies every result (GGUF's ".scale" siblings)
  // Factors of its products may be rounded to 16 bits, those of a matrix in blocks to bfloat16, and
  // mostly it meets many rows at a time: encoders of pictures, ActivationType::kBf16. A level
  // without units for such products ignores it.
  bool may_round = false;
  int64_t n_matrices = 1;  // one after another in `data`: the experts of a layer
};

enum class KvType : uint8_t { kF32, kF16, kQ8_0 };
std::string_view kv_type_name(KvType type);

// Shape of the keys and values of one attention layer.
struct KvLayerShape {
  int32_t n_kv_heads = 0;
  int32_t k_dim = 0, v_dim = 0;  // per head
  IndexShape index;
};
struct KvConfig {
  std::vector<KvLayerShape> layers;  // attention layers only, in order
  KvType type = KvType::kF16;
  SparseSwitches sparse;
  int32_t page_tokens = 64;
  uint32_t max_pages = 0;  // ids 0 .. max_pages - 1; physical memory follows use
};
uint64_t kv_page_bytes(const KvConfig& config);

struct StateConfig {
  uint64_t floats_per_slot = 0;  // all recurrent layers of one sequence
  uint32_t max_slots = 0;
};

enum class RopeStyle : uint8_t {
  kAdjacent,  // rotates (2i, 2i + 1): arch llama
  kHalfSplit  // rotates (i, i + n_rot / 2): lfm2, qwen
};
struct RopeConfig {
  RopeStyle style = RopeStyle::kHalfSplit;
  int32_t head_dim = 0;
  int32_t n_rot = 0;  // rotated leading values of each head, even, <= head_dim
  float freq_base = 10000.0f;
  std::vector<float> freq_divisors;  // empty, or n_rot / 2 values by which the angles are divided
};

// Attention inside a view of a picture: every row sees all rows of its own sequence of the step.
struct ViewAttention {
  int32_t n_heads = 0;
  float scale = 1.0f;
  Vector q_bias, k_bias, v_bias;  // (n_heads * head_dim) each; added first
  // Factors of products may be rounded to bfloat16, sums stay float32: for encoders whose weights
  // are quantised, where that adds less error than their activations in 8 bits. A level without
  // units for such products ignores it.
  bool may_round = false;
};
enum class Gelu : uint8_t { kTanh, kErf };

// One backend instance serves one engine and is used by its thread only.
class Backend {
 public:
  virtual ~Backend() = default;

  // --- identity -------------------------------------------------------------------------------
  virtual std::string_view name() const = 0;  // "cpu"
  // Everything besides weights that results depend on: backend, level, kernel revision, K/V type,
  // activation mode. Equal identities give equal bits.
  virtual std::string numeric_identity() const = 0;
  // "blk.0.attn_q.weight Q4_K -> avx512.gemm_q4k" lines, for `inspect` and start-up logs.
  virtual std::string describe_weight(Weight w) const = 0;
  virtual ExecTrace& trace() = 0;

  // --- memory ---------------------------------------------------------------------------------
  // Packs the matrix into the backend's layout; the source may go away afterwards.
  virtual Result<Weight> add_weight(const WeightSource& source) = 0;
  // Bytes add_weight would keep, for admission before loading; source.data is not read.
  virtual uint64_t packed_bytes(const WeightSource& source) const = 0;
  virtual Result<Vector> add_vector(std::span<const float> values) = 0;
  // Activation buffer of (max_rows, cols), zero at first.
  virtual Result<Rows> add_rows(int64_t max_rows, int64_t cols) = 0;
  // A buffer that layer_norm and project_attend_view alone write and products of `readers` alone
  // read: it may be kept in the form that they take, and cannot be read back.
  virtual Result<Rows> add_input_rows(int64_t max_rows, int64_t cols,
                                      std::span<const Weight> readers) = 0;
  virtual Rope add_rope(const RopeConfig& config) = 0;
  // Once each, before the first step.
  virtual Status set_kv(const KvConfig& config) = 0;
  virtual Status set_state(const StateConfig& config) = 0;
  // Memory for attend_view with up to max_rows rows of n_heads * head_dim values. Once.
  virtual Status set_view_attention(int64_t max_rows, int32_t n_heads, int32_t head_dim) = 0;

  // Memory for `moe`. Once.
  virtual Status set_experts(const ExpertsConfig& config) = 0;
  // The rows stay where they are for as long as the backend lives.
  virtual Result<NgramTable> add_ngram_table(const NgramTableSource& source) = 0;

  // Copies the first n_tokens positions of a page, for all layers.
  virtual void copy_page(PageId src, PageId dst, int32_t n_tokens) = 0;
  // The page's content will not be needed again; its physical memory may go back to the system.
  virtual void discard_page(PageId page) = 0;
  virtual void zero_slot(SlotId slot) = 0;
  virtual void copy_slot(SlotId src, SlotId dst) = 0;
  // Writes random keys, values and index keys for positions n_past .. n_past + n_rows - 1 of a
  // sequence and random state into its dst_slot, as if such tokens had been run: for measuring at
  // depths that would take hours to reach.
  virtual void fill_random(const SequenceSpan& sequence, uint64_t seed) = 0;
  // State in canonical order (float32, layer after layer), for saving. (floats_per_slot)
  virtual void download_slot(SlotId slot, std::span<float> out) const = 0;
  virtual void upload_slot(SlotId slot, std::span<const float> in) = 0;
  // Row `row` of an activation buffer after the step has ended. (cols)
  virtual std::span<const float> read(Rows rows, int64_t row) const = 0;
  // Overwrites a row before the step (image rows, tests).
  virtual void write(Rows rows, int64_t row, std::span<const float> values) = 0;

  // --- a step ---------------------------------------------------------------------------------
  // The plan and what it points to stay unchanged until end_step returns.
  virtual void begin_step(const BatchPlan& plan) = 0;
  virtual void end_step() = 0;
  // Where the following operations belong, for traces. `kind` is a static string.
  virtual void set_layer(int32_t layer, const char* kind) = 0;

  // out[r] = dequantised row `tokens[r]` of table.  table: (n_vocab rows of cols); out (n, cols)
  virtual void embed(Weight table, Rows out) = 0;
  // out[r] = in[r] * gamma / sqrt(mean(in[r]^2) + eps).  out may be in.
  virtual void rms_norm(Rows in, Vector gamma, float eps, Rows out) = 0;
  // The same over each head of head_dim = gamma.n values.  In place.
  virtual void norm_heads(Rows inout, Vector gamma, float eps) = 0;
  // outs[j][r] = weights[j] in[r] for all j (they share n_in): the input is quantised once.
  // No out is in.
  virtual void project(Rows in, std::span<const Weight> weights, std::span<const Rows> outs) = 0;
  // inout[r] += weight in[r].  inout is not in.
  virtual void project_add(Rows in, Weight weight, Rows inout) = 0;
  // Rotates every head of inout (cols = heads * head_dim) by its row's position.  In place.
  virtual void rope(Rows inout, Rope rope) = 0;
  // Stores k (n, n_kv_heads * k_dim) and v (n, n_kv_heads * v_dim) at each row's position in the
  // pages of its sequence, in the stored K/V type.
  virtual void kv_append(int32_t kv_layer, Rows k, Rows v) = 0;
  // out[r] = softmax(q[r] . K * scale) V over positions 0 .. position(r) of the row's own sequence,
  // query head h reading K/V head h / (n_heads / n_kv_heads). K and V are read as stored.
  // q (n, n_heads * k_dim); out (n, n_heads * v_dim), not q.
  virtual void attend(int32_t kv_layer, Rows q, int32_t n_heads, float scale, Rows out) = 0;
  // The gated short convolution of LFM2. bcx (n, 3d) holds B, C, X; u = B * X;
  // out[t] = C * (kernel[c][0] u[t-K+1] + ... + kernel[c][K-1] u[t]), terms added in this order.
  // kernel (d * K), K consecutive values per channel, oldest first. State: (K-1) * d floats at
  // state_offset of the slot, the last K-1 columns of u, oldest first.  out (n, d) is not bcx.
  virtual void short_conv(uint64_t state_offset, Rows bcx, Vector kernel, Rows out) = 0;
  // From here to the end of the step every sequence has only its last rows: those from its first
  // wanted output on and n_before in front of them, or all where it has no more. The rows of
  // `inouts` move together and other buffers hold none; positions, keys, states and outputs are as
  // they were. Where that drops no row, nothing happens; it may be called again with less.
  // Afterwards a convolution of K taps still leaves the right state if each sequence kept K - 1
  // rows or all, but the first K - 1 rows of its result are undefined where rows were dropped.
  // Operations that need all rows or the tokens (delta_rule, ngram_mix, index_append,
  // select_blocks, attend_view, embeddings of any kind) come before.
  virtual void keep_tails(uint32_t n_before, std::span<const Rows> inouts) = 0;
  // out = silu(gate) * up.  out may be gate or up.
  virtual void silu_mul(Rows gate, Rows up, Rows out) = 0;
  // out[i] = in[output_rows[i]].  out is not in; afterwards rows of `out` count n_outputs.
  virtual void gather_outputs(Rows in, Rows out) = 0;
  // Logits of the gathered rows: out[i][o] = weight in[i], n_outputs rows of n_vocab; labels in
  // the plan, out[i][j] = row labels[label_begin[i] + j] of weight times in[i], bit-equal to the
  // entry of the full product.
  virtual void logits(Rows in, Weight weight, Rows out) = 0;

  // --- residual streams (hyper-connections) ---------------------------------------------------
  // Each of n_groups equal parts of a row is normed on its own: out = in * gamma /
  // sqrt(mean(part^2)
  // + eps), gamma (cols).  out may be in.
  virtual void rms_norm_groups(Rows in, Vector gamma, int32_t n_groups, float eps, Rows out) = 0;
  // Every stream of out is in.  in (n, d), out (n, n_streams * d).
  virtual void spread_streams(Rows in, Rows out) = 0;
  // inout = silu(inout * scale).  In place.
  virtual void silu(Rows inout, float scale) = 0;
  // out = mean over streams c of sigmoid(mix_c) * normed_c.  normed, mix (n, n_streams * d);
  // out (n, d) is neither.
  virtual void mix_streams(Rows normed, Rows mix, Rows out) = 0;
  // inout_c += 2 sigmoid(strength[c] / n_streams) * y.  y (n, d), strength (n, n_streams).
  virtual void inject_streams(Rows y, Rows strength, Rows inout) = 0;

  // --- gates, recurrence ----------------------------------------------------------------------
  // inout *= sigmoid(gate).
  virtual void sigmoid_mul(Rows gate, Rows inout) = 0;
  // out = silu(kernel[c][0] in[t-K+1] + ... + kernel[c][K-1] in[t]) per channel c, terms added in
  // this order. kernel (d * K), K consecutive values per channel. State: (K-1) * d floats at
  // state_offset of the slot, the last K-1 rows of in, oldest first.  out (n, d) is not in.
  virtual void causal_conv(uint64_t state_offset, Rows in, Vector kernel, Rows out) = 0;
  // qkv (n, (2 n_key_heads + n_value_heads) * head_dim): q, k, v; alpha, beta (n, n_value_heads);
  // out (n, n_value_heads * head_dim). One token after the other, in float32.
  virtual void delta_rule(const DeltaRule& rule, Rows qkv, Rows alpha, Rows beta, Rows out) = 0;
  // inout = norm of each head of gamma.n values, times gamma, times the gate's function.
  virtual void gated_norm(Rows gate, GateKind kind, Vector gamma, float eps, Rows inout) = 0;

  // --- experts --------------------------------------------------------------------------------
  // p = softmax(router[r]); of the n_used largest (ties to the lower expert) with w = scale p / sum
  // p: out[r] = sum w_e expert_e(in[r]), summed in the order of p.  out is not in.
  virtual void moe(Rows in, Rows router, const Experts& experts, Rows out) = 0;
  // inout[r] += sigmoid(gate[r][0]) * in[r].
  virtual void add_gated(Rows in, Rows gate, Rows inout) = 0;

  // --- hashed n-grams -------------------------------------------------------------------------
  // Has the table's rows for all tokens of the step read from the file.
  virtual void ngram_prefetch(NgramTable table) = 0;
  // out[r] = the rows of the heads, one after another.  out (n, table.cols)
  virtual void ngram_embed(NgramTable table, Rows out) = 0;
  // key (n, n_streams * d) is used up; value (n, d); inout (n, n_streams * d).
  virtual void ngram_mix(const NgramMix& mix, Rows key, Rows value, Rows inout) = 0;

  // --- sparse attention -----------------------------------------------------------------------
  // Takes k (n, dim), the index key of each row, and writes the pooled key of every block that is
  // now complete. After kv_append or before it, before select_blocks.
  virtual void index_append(const IndexKeys& keys, Rows k) = 0;
  // For every row with n positions up to itself and B = n / block_tokens complete blocks: all
  // blocks where B <= budget / block_tokens; else those that many with the best
  //   score(b) = sum over heads h of max(0, q_h . pooled_b) / sqrt(dim),
  // ties to the lower block. q (n, n_heads * dim), normed and rotated.
  virtual void select_blocks(int32_t kv_layer, Rows q) = 0;
  // attend, over the positions of the selected blocks and the open one in order, as the layer's
  // last select_blocks chose them; where that is everything, to the bit what attend gives.
  virtual void attend_selected(int32_t kv_layer, Rows q, int32_t n_heads, float scale,
                               Rows out) = 0;
  // Positions that row `row` of the step attends to on the layer, ascending; after select_blocks,
  // until the next step begins.
  virtual std::vector<uint32_t> selected_positions(int32_t kv_layer, uint32_t row) const = 0;

  // --- pictures -------------------------------------------------------------------------------
  // inout[r] = the plan's embedding of row r, where it has one.  In place.
  virtual void put_embeddings(Rows inout) = 0;
  // inout[r] += bias.  In place.
  virtual void add_bias(Rows inout, Vector bias) = 0;
  // inout[r] += bias, where `bias` is valid; then with x = inout[r]
  // out[r] = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * gamma + beta.  out may be inout.
  virtual void layer_norm(Rows inout, Vector bias, Vector gamma, Vector beta, float eps,
                          Rows out) = 0;
  // inout[r] = gelu(inout[r] + bias): s (1 + tanh(sqrt(2 / pi) (s + 0.044715 s^3))) / 2 or
  // s (1 + erf(s / sqrt(2))) / 2.  In place.
  virtual void gelu(Rows inout, Vector bias, Gelu kind) = 0;
  // inout[r] += down gelu(up in[r] + bias), where gelu's result may be rounded as the input of
  // `down` is.  No two of in, hidden, inout are the same; afterwards `hidden` is undefined.
  virtual void feed_forward(Rows in, Weight up, Vector bias, Gelu kind, Rows hidden, Weight down,
                            Rows inout) = 0;
  // inout[r] += down (silu(gate in[r]) * (up in[r])), where the product may be rounded as the input
  // of `down` is.  No two of in, hidden, hidden2, inout are the same; afterwards the hidden rows,
  // which are as wide as `down` reads, are undefined.
  virtual void gated_feed_forward(Rows in, Weight gate, Weight up, Rows hidden, Rows hidden2,
                                  Weight down, Rows inout) = 0;
  // out[r] = softmax((q[r] + q_bias) . (K + k_bias) * scale) (V + v_bias) over all rows of the
  // row's own sequence, before and behind it. q, k, v, out (n, n_heads * head_dim), out being none
  // of the others; q is used up.
  virtual void attend_view(const ViewAttention& a, Rows q, Rows k, Rows v, Rows out) = 0;
  // attend_view of weights[0] in, weights[1] in and weights[2] in, where the products may be
  // rounded as attend_view rounds them. q, k, v: as attend_view takes them, undefined afterwards.
  virtual void project_attend_view(const ViewAttention& a, Rows in,
                                   std::span<const Weight, 3> weights, Rows q, Rows k, Rows v,
                                   Rows out) = 0;
  // out[i] = in[output_rows[g i]], ..., in[output_rows[g i + g - 1]] one after another, with
  // g = out.cols / in.cols.  out is not in; afterwards rows of `out` count n_outputs / g.
  virtual void join_rows(Rows in, Rows out) = 0;
};

}  // namespace okibi::ops
