// Takes tensors out of a GGUF file by name, checks their shapes against what the hyper-parameters
// demand, and hands them to a backend. With no backend it only checks and counts, which is how an
// engine plans memory before it loads anything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "okibi/status.h"
#include "ops/ops.h"

namespace okibi::model {

class WeightLoader {
 public:
  // `sizer` answers packed_bytes; `target` receives the tensors, or is null when only planning.
  WeightLoader(const gguf::File& file, const ops::Backend& sizer, ops::Backend* target)
      : file_(file), sizer_(sizer), target_(target) {}

  // The matrix `name`.weight with rows of n_in values and n_out rows, of any weight type; its
  // ".scale" sibling, if there is one, is folded into the result.
  Result<ops::Weight> matrix(const std::string& name, int64_t n_in, int64_t n_out);
  // The same for a matrix that the file keeps in more dimensions (patch kernels), of a type without
  // blocks; the values of a row follow each other.
  Result<ops::Weight> flat_matrix(const std::string& name, int64_t n_in, int64_t n_out);
  // The tensor `name` with n elements in total, as float32 (norms, convolution kernels).
  Result<ops::Vector> vector(const std::string& name, int64_t n);
  // Same, as plain numbers.
  Result<std::vector<float>> floats(const std::string& name, int64_t n);
  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  const gguf::File& file() const { return file_; }

  uint64_t packed_bytes() const { return packed_bytes_; }
  uint64_t n_parameters() const { return n_parameters_; }
  const std::vector<ops::Weight>& weights() const { return weights_; }
  // Packed bytes of one matrix that was loaded.
  uint64_t bytes_of(ops::Weight weight) const;

  std::function<void(uint64_t source_bytes_done)> on_progress;
  bool may_round = false;  // of the matrices that follow (ops::WeightSource)

 private:
  Result<const gguf::TensorInfo*> find(const std::string& name, int64_t ne0, int64_t rows) const;
  Result<ops::Weight> add(const gguf::TensorInfo& info, int64_t n_in, int64_t n_out, float scale);
  void count(const gguf::TensorInfo& info);

  const gguf::File& file_;
  const ops::Backend& sizer_;
  ops::Backend* target_;
  uint64_t packed_bytes_ = 0;
  uint64_t n_parameters_ = 0;
  uint64_t source_bytes_done_ = 0;
  std::vector<ops::Weight> weights_;
  std::vector<uint64_t> weight_bytes_;  // beside weights_
};

}  // namespace okibi::model
