// Files of the shape of real models, to be filled with random weights: which keys, which tensors,
// how large. Nothing here writes; see model/synth/write.h. The shapes are those of the published
// models (docs/models.md), so that speed can be measured at true size without their weights.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "okibi/status.h"

namespace okibi::model {

// How a tensor is stored when the file is written as some type.
enum class SynthStorage {
  kMatrix,     // the type, or its fallback where a block does not divide the row
  kEmbedding,  // a finer type than the layers, as published files do
  kTable,      // the n-gram table: rows of 160, which no super-block divides
  kPatch,      // the patch kernel of a vision tower: 16-bit or F32
  kF32,        // norms, biases, routers, convolutions
};

struct SynthTensor {
  std::string name;
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};
  int n_dims = 1;
  SynthStorage storage = SynthStorage::kF32;
  // Values are uniform with this mean and standard deviation.
  float mean = 0.0f;
  float std_dev = 0.0f;

  uint64_t n_elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

using SynthValue =
    std::variant<uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<int32_t>,
                 std::vector<uint64_t>, std::vector<float>, std::vector<bool>>;

// One file to be.
struct SynthPlan {
  std::vector<std::pair<std::string, SynthValue>> keys;  // general.architecture first
  std::vector<SynthTensor> tensors;

  uint64_t n_parameters() const;

  void key(std::string name, SynthValue value) {
    keys.emplace_back(std::move(name), std::move(value));
  }
  void u32(std::string name, uint64_t value) { key(std::move(name), static_cast<uint32_t>(value)); }
  // A matrix that multiplies vectors of ne[0] values: standard deviation 1 / sqrt(ne[0]) keeps the
  // size of what passes through it.
  void matrix(std::string name, std::vector<uint64_t> ne,
              SynthStorage storage = SynthStorage::kMatrix);
  void norm(std::string name, uint64_t n);  // values near 1
  void floats(std::string name, std::vector<uint64_t> ne, float mean, float std_dev);
};

// A named shape: the language model and, where the model sees, its vision file.
struct SynthShape {
  SynthPlan text;
  SynthPlan vision;  // no tensors: none
  bool has_vision() const { return !vision.tensors.empty(); }
};

// "lfm2-350m", ... in the order of the table in plan.cpp.
std::vector<std::string_view> synth_shape_names();
// The error lists the names.
Result<SynthShape> make_synth_shape(std::string_view name);

}  // namespace okibi::model
