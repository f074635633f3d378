// Which type each tensor of a file gets when the file is quantised, and the label the result bears.
// Pure decisions; apps/quantize.cpp does the work.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "tensor/dtype.h"

namespace okibi::apps {

struct TensorPlan {
  const gguf::TensorInfo* source;
  DType target;
  std::string note;  // why the target is not the type asked for; empty if it is
};

// True for matrices that tolerate rounding: at least two dimensions, "*.weight", and none of norms,
// routers, convolution kernels and position tables.
bool is_quantizable(const gguf::TensorInfo& info);

// The type itself if rows of `n` values can have it, else the nearest that can.
DType fitting_type(DType wanted, uint64_t n);

// Tensors in `pinned` become F32: their values do not fit the type asked for.
std::vector<TensorPlan> plan_quantization(const gguf::File& file, DType wanted,
                                          const std::set<std::string, std::less<>>& pinned);

// general.file_type for the result: the wanted type's number, or that of the type with the most
// bytes where no tensor got the wanted one.
uint32_t file_type_of(const std::vector<TensorPlan>& plan, DType wanted);

// The targets of the command, in the order that help texts list them.
const std::vector<DType>& quantize_targets();

}  // namespace okibi::apps
