// Tiny models with random weights, written as GGUF files for tests that need a whole model of some
// family and weight type but no particular one.
#pragma once

#include <string>

#include "tensor/dtype.h"

namespace okibi::test {

// Writes (once per process and kind) a model of `architecture` ("llama", "lfm2", "qwen35" or
// "qwen4exp") whose matrices are of `type`, and returns its path. Width 256, 4 or 5 layers, 320
// tokens, context 4096. The last two layers of attention of qwen4exp select 8 blocks of 4 tokens.
std::string tiny_model(const std::string& architecture, DType type);

}  // namespace okibi::test
