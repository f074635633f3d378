// Pieces of qwen4exp: hyper-connections, the mixture of experts with its shared expert, the hashed
// n-gram embedding; each as weights to load, buffers and operations to run. Formulas: spec of
// qwen4exp, sections 3.3, 3.6 and 3.7.
#pragma once

#include <cstdint>
#include <string>

#include "model/families/qwen_hparams.h"
#include "model/families/rows_plan.h"
#include "model/model.h"
#include "model/weight_loader.h"
#include "ops/ops.h"

namespace okibi::model {

// Mixes the residual streams into one input and says how strongly the block's result returns to
// each. `stem`_{norm, down, up, inject}; the one before the output injects nothing.
struct HyperConnection {
  ops::Vector norm;
  ops::Weight down, up, inject;
};
Result<HyperConnection> load_hyper_connection(WeightLoader& loader, const std::string& stem,
                                              const FlashNextHparams& f, bool injects);

// Buffers of the mixing of either all rows or the output rows.
struct StreamRows {
  ops::Rows normed, low, mix, strength;  // (n_streams d), (low_rank), (n_streams d), (n_streams)
};
// out = the streams' mix; rows.strength where the connection injects.
void run_hyper_connection(ops::Backend& b, const HyperConnection& hc, int32_t n_streams, float eps,
                          ops::Rows streams, const StreamRows& rows, ops::Rows out);

// blk.i.ffn_*: routed experts and a shared one behind a gate.
struct ExpertLayer {
  ops::Weight router;
  ops::Experts experts;
  ops::Weight shared_gate, shared_up, shared_down, shared_strength;
};
Result<ExpertLayer> load_expert_layer(WeightLoader& loader, const std::string& prefix,
                                      const FlashNextHparams& f);
struct ExpertRows {
  ops::Rows router, gate, up, strength, shared;
};
// out = the layer's result for `in`.
void run_expert_layer(ops::Backend& b, const ExpertLayer& e, const ExpertRows& rows, ops::Rows in,
                      ops::Rows out);

// The table and blk.i.ple_*.
struct NgramLayer {
  ops::NgramTable table;
  ops::Weight key, value;
  ops::NgramMix mix;
};
// Takes its place in the recurrent state from facts->state_floats on.
Result<NgramLayer> load_ngram_layer(WeightLoader& loader, const FlashNextHparams& f,
                                    ModelFacts* facts);
struct NgramRows {
  ops::Rows gathered, key, value;
};
// streams += the n-grams of each token.
void run_ngram_layer(ops::Backend& b, const NgramLayer& n, const NgramRows& rows,
                     ops::Rows streams);

// The blocks behind the trunk (they draft further tokens, which this build does not): what the file
// has of them must have the right shapes; nothing is loaded.
Status check_next_token_blocks(const WeightLoader& loader, const FlashNextHparams& f);

}  // namespace okibi::model
