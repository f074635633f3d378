// Takes tensors out of a GGUF file by name, checks their shapes against what the hyper-parameters
// demand, and hands them to a backend. With no backend it only checks and counts, which is how an
// engine plans memory before it loads anything.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "okibi/status.h"
#include "ops/ops.h"

namespace okibi::model {

class WeightLoader {
 public:
  // `sizer` answers packed_bytes; `target` receives the tensors, or is null when only planning. A
  // target reads an n-gram table from `file` for as long as it lives.
  WeightLoader(const gguf::File& file, const ops::Backend& sizer, ops::Backend* target)
      : file_(file), sizer_(sizer), target_(target) {}

  // The matrix `name`.weight with rows of n_in values and n_out rows, of any weight type; its
  // ".scale" sibling, if there is one, is folded into the result.
  Result<ops::Weight> matrix(const std::string& name, int64_t n_in, int64_t n_out);
  // A matrix that is also read back row by row, or of which products want a few outputs: of the
  // tokens. It never rounds.
  Result<ops::Weight> table(const std::string& name, int64_t n_in, int64_t n_out);
  // A matrix that the file keeps in more dimensions (patch kernels), of a type without
  // blocks; the values of a row follow each other.
  Result<ops::Weight> flat_matrix(const std::string& name, int64_t n_in, int64_t n_out);
  // The matrices `name`.weight of n_matrices experts, of which a token uses n_used.
  Result<ops::Weight> experts(const std::string& name, int64_t n_in, int64_t n_out,
                              int64_t n_matrices, int64_t n_used);
  // Rows [first, first + n_out) of every `period` rows of `name`.weight, whose n_rows rows the file
  // keeps interleaved: as one matrix, or with experts' n_used > 0 as one matrix per period.
  struct Interleaved {
    int64_t n_rows = 0, period = 0, first = 0, n_out = 0;
    int64_t n_used = 0;
  };
  Result<ops::Weight> interleaved(const std::string& name, int64_t n_in, const Interleaved& rows);
  // The table, whose rows stay in the file: `source` without `prefetch`.
  Result<ops::NgramTable> ngram_table(ops::NgramTableSource source);
  // Checks the shape of a tensor that is not loaded.
  Status expect(const std::string& name, int64_t ne0, int64_t n_rows) const {
    return find(name, ne0, n_rows).status();
  }
  // The tensor `name` with n elements in total, as float32 (norms, convolution kernels).
  Result<ops::Vector> vector(const std::string& name, int64_t n);
  // Same, as plain numbers.
  Result<std::vector<float>> floats(const std::string& name, int64_t n) const;
  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  const gguf::File& file() const { return file_; }

  uint64_t packed_bytes() const { return packed_bytes_; }
  uint64_t n_parameters() const { return n_parameters_; }
  const std::vector<ops::Weight>& weights() const { return weights_; }
  // Packed bytes of one matrix that was loaded.
  uint64_t bytes_of(ops::Weight weight) const;
  // Of a matrix, what one token reads and multiplies: all of it, or the experts that it uses.
  struct PerToken {
    uint64_t bytes = 0, macs = 0;
  };
  PerToken per_token(ops::Weight weight) const;

  std::function<void(uint64_t source_bytes_done)> on_progress;
  bool may_round = false;  // of the matrices that follow (ops::WeightSource)

 private:
  Result<const gguf::TensorInfo*> find(const std::string& name, int64_t ne0, int64_t rows) const;
  Result<float> scale_of(const std::string& name) const;
  // `source` without its data, which is `data` where that is not empty, else the tensor's.
  Result<ops::Weight> add(const gguf::TensorInfo& info, ops::WeightSource source, int64_t n_used,
                          std::span<const uint8_t> data = {});
  void count(uint64_t n_elements, uint64_t n_bytes);

  const gguf::File& file_;
  const ops::Backend& sizer_;
  ops::Backend* target_;
  uint64_t packed_bytes_ = 0;
  uint64_t n_parameters_ = 0;
  uint64_t source_bytes_done_ = 0;
  std::vector<ops::Weight> weights_;
  std::vector<uint64_t> weight_bytes_;  // beside weights_
  std::vector<int64_t> n_used_;         // the same: matrices of it that a token uses
};

}  // namespace okibi::model
