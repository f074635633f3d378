// The table of named shapes and the small helpers of a plan.
#include "model/synth/plan.h"

#include <algorithm>
#include <cmath>

#include "model/synth/families.h"

namespace okibi::model {
namespace {

SynthTensor tensor_of(std::string name, const std::vector<uint64_t>& ne) {
  SynthTensor tensor;
  tensor.name = std::move(name);
  std::copy(ne.begin(), ne.end(), tensor.ne.begin());
  tensor.n_dims = static_cast<int>(ne.size());
  return tensor;
}

SynthShape smollm2_135m() {
  return {.text = synth::plan_llama({.n_layers = 30,
                                     .d_model = 576,
                                     .n_heads = 9,
                                     .n_kv_heads = 3,
                                     .head_dim = 64,
                                     .d_ff = 1536,
                                     .n_vocab = 49152,
                                     .n_ctx = 8192,
                                     .rope_base = 1e5f}),
          .vision = {}};
}

SynthShape lfm2_350m() {
  return {.text = synth::plan_lfm2(
              {.d_model = 1024, .n_heads = 16, .d_ff = 4608, .is_first_generation = true}),
          .vision = {}};
}

SynthShape lfm2_1_2b() {
  return {.text = synth::plan_lfm2(
              {.d_model = 2048, .n_heads = 32, .d_ff = 8192, .is_first_generation = true}),
          .vision = {}};
}

SynthShape lfm25_vl_450m() {
  return {.text = synth::plan_lfm2(
              {.d_model = 1024, .n_heads = 16, .d_ff = 4608, .is_first_generation = false}),
          .vision = synth::plan_siglip2({.d_model = 768,
                                         .n_layers = 12,
                                         .n_heads = 12,
                                         .d_ff = 3072,
                                         .projector_hidden = 2048,
                                         .d_text = 1024})};
}

SynthShape lfm25_vl_1_6b() {
  return {.text = synth::plan_lfm2(
              {.d_model = 2048, .n_heads = 32, .d_ff = 8192, .is_first_generation = false}),
          .vision = synth::plan_siglip2({.d_model = 1152,
                                         .n_layers = 27,
                                         .n_heads = 16,
                                         .d_ff = 4304,
                                         .projector_hidden = 2048,
                                         .d_text = 2048})};
}

SynthShape qwen35_0_8b() {
  return {.text = synth::plan_qwen35({.n_layers = 24,
                                      .d_model = 1024,
                                      .n_heads = 8,
                                      .n_kv_heads = 2,
                                      .n_ctx = 262144,
                                      .n_vocab = 248320,
                                      .delta_value_heads = 16},
                                     3584),
          .vision = {}};
}

SynthShape flash_next() {
  return {.text = synth::plan_flash_next({.base = {.n_layers = 48,
                                                   .d_model = 2560,
                                                   .n_heads = 24,
                                                   .n_kv_heads = 2,
                                                   .n_ctx = 262144,
                                                   .n_vocab = 248320,
                                                   .delta_value_heads = 48},
                                          .n_experts = 512,
                                          .n_experts_used = 10,
                                          .ngram_vocab_base = 20'000'000,
                                          .tiny_vocabulary = false}),
          .vision = {}};
}

// One layer is as flash-next's; everything that only adds bytes is small.
SynthShape flash_next_mini() {
  return {.text = synth::plan_flash_next({.base = {.n_layers = 12,
                                                   .d_model = 1024,
                                                   .n_heads = 24,
                                                   .n_kv_heads = 2,
                                                   .n_ctx = 1'052'672,
                                                   .n_vocab = 640,
                                                   .delta_value_heads = 48},
                                          .n_experts = 32,
                                          .n_experts_used = 4,
                                          .ngram_vocab_base = 500,
                                          .tiny_vocabulary = true}),
          .vision = {}};
}

struct NamedShape {
  std::string_view name;
  SynthShape (*make)();
};
constexpr NamedShape kShapes[] = {
    {"smollm2-135m", smollm2_135m},    {"lfm2-350m", lfm2_350m},
    {"lfm2-1.2b", lfm2_1_2b},          {"lfm2.5-vl-450m", lfm25_vl_450m},
    {"lfm2.5-vl-1.6b", lfm25_vl_1_6b}, {"qwen3.5-0.8b", qwen35_0_8b},
    {"flash-next", flash_next},        {"flash-next-mini", flash_next_mini},
};

}  // namespace

uint64_t SynthPlan::n_parameters() const {
  uint64_t n = 0;
  for (const SynthTensor& tensor : tensors) n += tensor.n_elements();
  return n;
}

void SynthPlan::matrix(std::string name, std::vector<uint64_t> ne, SynthStorage storage) {
  SynthTensor tensor = tensor_of(std::move(name), ne);
  tensor.storage = storage;
  tensor.std_dev = 1.0f / std::sqrt(static_cast<float>(ne[0]));
  tensors.push_back(std::move(tensor));
}

void SynthPlan::norm(std::string name, uint64_t n) {
  floats(std::move(name), {n}, 1.0f, 0.1f);
}

void SynthPlan::floats(std::string name, std::vector<uint64_t> ne, float mean, float std_dev) {
  SynthTensor tensor = tensor_of(std::move(name), ne);
  tensor.mean = mean;
  tensor.std_dev = std_dev;
  tensors.push_back(std::move(tensor));
}

std::vector<std::string_view> synth_shape_names() {
  std::vector<std::string_view> names;
  for (const NamedShape& shape : kShapes) names.push_back(shape.name);
  return names;
}

Result<SynthShape> make_synth_shape(std::string_view name) {
  std::string known;
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) return shape.make();
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  return invalid_argument("unknown shape \"" + std::string(name) + "\", expected one of: " + known);
}

namespace synth {

void add_general_keys(SynthPlan& plan, const char* architecture, const char* type) {
  plan.key("general.architecture", std::string(architecture));
  plan.key("general.type", std::string(type));
  plan.key("general.description", std::string("random weights in the shape of a published model"));
}

}  // namespace synth
}  // namespace okibi::model
