// Model: one loaded network. A family (families/*.cpp) reads its sizes and weights from a file and
// writes its forward pass as a list of operations; nothing here knows a backend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace okibi::model {

// Query heads of an attention layer, and those of its index, 0 without one.
struct QueryHeads {
  int32_t n_heads = 0, n_index_heads = 0;
  bool only_tails = false;  // rows in front of a step's first output do not attend (keep_tails)
};

// Facts that every family has.
struct ModelFacts {
  std::string architecture;
  std::string name;
  int32_t n_layers = 0;
  int64_t d_model = 0;
  int64_t n_vocab = 0;
  int64_t n_ctx_trained = 0;
  uint64_t n_parameters = 0;
  std::vector<ops::KvLayerShape> kv_layers;  // attention layers, in order
  std::vector<QueryHeads> query_heads;       // beside kv_layers
  uint64_t state_floats = 0;                 // recurrent state of one sequence
  std::vector<ops::Weight> weights;          // all matrices, for descriptions
  uint64_t weight_bytes_per_token = 0;       // packed bytes that one decoded token reads
  uint64_t expert_bytes_per_token = 0;       // of those, the experts that it uses
  uint64_t output_bytes = 0;                 // and the output matrix
  uint64_t macs_per_token = 0;               // multiply-adds of all matrices but the output's
  uint64_t tail_macs_per_token = 0;          // of those, which only rows with outputs need
  uint64_t output_macs = 0;                  // of the output matrix, per output row
};

class Model {
 public:
  virtual ~Model() = default;
  const ModelFacts& facts() const { return facts_; }

  // Activation buffers for steps of up to max_rows tokens and max_outputs output rows. Once.
  virtual Status add_activations(ops::Backend& backend, int64_t max_rows, int64_t max_outputs) = 0;
  // Bytes that add_activations would take.
  virtual uint64_t activation_bytes(int64_t max_rows, int64_t max_outputs) const = 0;

  // The operations of one step, between begin_step and end_step. With outputs, the logits of the
  // plan's output rows are afterwards in the rows of `logits()`.
  virtual void forward(ops::Backend& backend, bool with_outputs) const = 0;
  virtual ops::Rows logits() const = 0;

 protected:
  ModelFacts facts_;
};

}  // namespace okibi::model
