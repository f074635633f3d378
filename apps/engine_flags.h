// The flags that every command with an engine shares, and what follows from them: opening the model
// with progress, and writing the profile.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "okibi/engine.h"
#include "okibi/sampler.h"
#include "okibi/status.h"

namespace okibi::apps {

// What --kv and --activations take.
inline const std::vector<std::string> kKvNames = {"f32", "f16", "q8_0"};
inline const std::vector<std::string> kActivationNames = {"auto", "q8", "bf16", "f32"};

struct EngineFlags {
  EngineOptions options;
  std::string kv = "f16";
  std::string activations = "auto";
  // What "auto" stands for.
  ActivationType own_activations = ActivationType::kInt8;
  std::string pooled = "on", attend = "selected", topk = "blocks";  // --qsa-...
  std::string profile_path;

  // Adds -m, --mmproj, --vision-cache, --cpu, --threads, --ctx, --kv, --activations, --qsa-*,
  // --chat-layout and --profile. What --activations auto stands for is up to the command:
  // decisions are prefill and little else.
  void add(CLI::App* command, ActivationType own = ActivationType::kInt8);
  // The options with the texts above read into them.
  EngineOptions resolved() const;
  // Opens the model, with a bar on standard error when it takes a while.
  Result<std::shared_ptr<Engine>> open() const;
  // After the work: the profile's table to standard error and its trace to the file, when asked
  // for.
  Status write_profile(Engine& engine) const;
};

// Adds --temp, --top-k, --top-p, --min-p, the penalties and --seed.
void add_sampler_flags(CLI::App* command, SamplerOptions* options);

// "logits 0123456789abcdef": the hash by which two runs are compared.
std::string hash_text(uint64_t hash);

}  // namespace okibi::apps
