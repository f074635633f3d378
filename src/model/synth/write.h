// Writes the files of a synthetic shape (model/synth/plan.h) with random weights.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model/synth/plan.h"
#include "okibi/status.h"
#include "tensor/dtype.h"

namespace okibi::model {

struct SynthOptions {
  DType type = DType::kQ4_K;
  uint64_t seed = 1;
  bool with_data = true;  // false: a sparse file whose weights are all zero
  // Called now and then with the bytes written and the bytes there will be.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// The type a tensor is stored in when the file is written as `type`. Where a block does not divide
// the row: IQ types fall back to IQ4_NL, Q2_K, Q3_K and TQ to Q4_0, Q4_K to Q5_0, Q5_K to Q5_1,
// Q6_K to Q8_0, anything else to F16. Embeddings of types below 6 bits are stored as Q6_K (Q8_0
// where 256 does not divide the row), the n-gram table of quantised files as IQ4_NL: both as
// published files have it.
DType synth_tensor_type(const SynthTensor& tensor, DType type);
// The type of the vision file beside a model of this type: 16-bit and 8-bit types as asked, the
// smaller ones Q8_0.
DType synth_vision_type(DType type);

struct SynthSummary {
  uint64_t n_tensors = 0, n_parameters = 0, data_bytes = 0;
};
Result<SynthSummary> write_synth(const SynthPlan& plan, const std::string& path,
                                 const SynthOptions& options);

}  // namespace okibi::model
