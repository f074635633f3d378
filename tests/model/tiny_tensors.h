// What a tiny model consists of; private to tiny_models.cpp and tiny_qwen.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/writer.h"
#include "tensor/dtype.h"

namespace okibi::test {

struct TinyTensor {
  std::string name;
  DType type;
  std::vector<uint64_t> ne;
  float mean, deviation;
};

// qwen35 and qwen4exp: Gated DeltaNet in layers 0, 1 and 3, attention in layers 2 and 4; qwen4exp
// hashes n-grams in layer 1, has 4 experts of which 2 are used, and selects 8 blocks of 4 tokens.
std::vector<TinyTensor> tiny_qwen_tensors(const std::string& arch, DType type, uint64_t n_vocab);
void set_tiny_qwen_keys(gguf::Writer& w, const std::string& arch);

}  // namespace okibi::test
