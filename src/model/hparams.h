// Hyper-parameters that every language model in a GGUF file has, read with the defaults and limits
// of the format. Families add their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "okibi/status.h"

namespace okibi::model {

struct Hparams {
  std::string arch;
  std::string name;
  int32_t n_layers = 0;
  int64_t d_model = 0;
  int64_t n_vocab = 0;
  int64_t n_ctx_trained = 0;
  float norm_eps = 0;
  float rope_freq_base = 10000.0f;
  std::vector<int32_t> n_heads;     // per layer
  std::vector<int32_t> n_kv_heads;  // per layer; 0: no attention there
  std::vector<int64_t> d_ff;        // per layer
  int32_t k_dim = 0, v_dim = 0;     // per head; 0 when the file does not say
  int32_t n_rot = 0;                // 0 when the file does not say
};

// Errors name the key, what was found and what is allowed.
Result<Hparams> read_hparams(const gguf::File& file);

// An integer key within [min, max].
Result<int64_t> read_int(const gguf::File& file, const std::string& key, int64_t min, int64_t max);
Result<int64_t> read_int_or(const gguf::File& file, const std::string& key, int64_t fallback,
                            int64_t min, int64_t max);
// An integer key that may be one number for all layers or one per layer.
Result<std::vector<int64_t>> read_per_layer(const gguf::File& file, const std::string& key,
                                            int32_t n_layers, int64_t fallback, int64_t min,
                                            int64_t max);

}  // namespace okibi::model
