// See engine_flags.h.
#include "apps/engine_flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "apps/progress.h"
#include "apps/terminal.h"

namespace okibi::apps {

void EngineFlags::add(CLI::App* command, ActivationType own) {
  own_activations = own;
  command->add_option("-m,--model", options.model_path, "the model, a GGUF file")
      ->required()
      ->type_name("FILE");
  command->add_option("--mmproj", options.mmproj_path, "the vision file beside the model")
      ->type_name("FILE");
  command
      ->add_option("--vision-cache", options.vision_cache_mib,
                   "MiB that may be kept of pictures, 0 (nothing) to 4096")
      ->capture_default_str();
  command
      ->add_option("--state-cache", options.state_cache_mib,
                   "MiB of prefilled states kept for the next decision, 0 (none) to 4096")
      ->capture_default_str();
  command
      ->add_option("--answer-cache", options.answer_cache_mib,
                   "MiB of label logits kept for identical questions, 0 (none) to 4096")
      ->capture_default_str();
  command->add_option("--cpu", options.cpu_level, "instruction-set level; default: the host's best")
      ->check(CLI::IsMember({"reference", "avx2", "avx512", "amx"}));
  command->add_option("--threads", options.n_threads, "threads; default: one per core")
      ->check(CLI::Range(0, 4096));
  command->add_option("--ctx", options.n_ctx,
                      "tokens a session may hold; default: what the file says, as memory allows");
  command->add_option("--kv", kv, "type of cached keys and values")
      ->check(CLI::IsMember(kKvNames))
      ->capture_default_str();
  command
      ->add_option(
          "--activations", activations,
          "of products: q8: 8 bits, best for writing text; bf16: fast for questions, twice "
          "the memory of Q8_0 weights, with AMX only; f32: exact, slow, for checking")
      ->check(CLI::IsMember(kActivationNames))
      ->capture_default_str();
  command
      ->add_option("--qsa-pooled", pooled,
                   "off: pool the index keys of the whole context at every step; for measuring")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command
      ->add_option("--qsa-attend", attend,
                   "masked: read every key and value, mask those not selected; for measuring")
      ->check(CLI::IsMember({"selected", "masked"}))
      ->capture_default_str();
  command->add_option("--qsa-topk", topk, "cells: select among cells, not blocks; for measuring")
      ->check(CLI::IsMember({"blocks", "cells"}))
      ->capture_default_str();
  command->add_option("--chat-layout", options.chat_layout,
                      "lay chats out this way whatever the file's template says");
  command->add_option("--profile", profile_path,
                      "print time per operation; write a Chrome trace to this file");
}

EngineOptions EngineFlags::resolved() const {
  EngineOptions result = options;
  result.kv_type = kv == "f32"    ? KvCacheType::kF32
                   : kv == "q8_0" ? KvCacheType::kQ8_0
                                  : KvCacheType::kF16;
  result.activations = activations == "f32"    ? ActivationType::kF32
                       : activations == "bf16" ? ActivationType::kBf16
                       : activations == "q8"   ? ActivationType::kInt8
                                               : own_activations;
  result.sparse = {.keep_pooled = pooled == "on",
                   .attend_selected = attend == "selected",
                   .select_blocks = topk == "blocks"};
  return result;
}

Result<std::shared_ptr<Engine>> EngineFlags::open() const {
  Progress progress("loading", "");
  EngineOptions with_progress = resolved();
  with_progress.on_load_progress = [&](double fraction) { progress.update(fraction, 1); };
  Result<std::shared_ptr<Engine>> engine = Engine::open(std::move(with_progress));
  progress.finish();
  if (engine.ok() && !profile_path.empty()) (*engine)->set_profiling(true);
  return engine;
}

Status EngineFlags::write_profile(Engine& engine) const {
  if (profile_path.empty()) return ok_status();
  const Engine::Profile profile = engine.take_profile();
  std::fprintf(stderr, "%s", profile.table.c_str());
  return write_file(profile_path, profile.chrome_json);
}

void add_sampler_flags(CLI::App* command, SamplerOptions* o) {
  command->add_option("--temp", o->temperature, "temperature; 0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", o->top_k, "choose among the K likeliest; 0: all")
      ->capture_default_str();
  command->add_option("--top-p", o->top_p, "choose among the likeliest that reach this share")
      ->capture_default_str();
  command
      ->add_option("--min-p", o->min_p, "leave out what is less likely than this x the likeliest")
      ->capture_default_str();
  command->add_option("--repeat-penalty", o->repeat_penalty, "1: none")->capture_default_str();
  command->add_option("--presence-penalty", o->presence_penalty, "0: none")->capture_default_str();
  command->add_option("--frequency-penalty", o->frequency_penalty, "0: none")
      ->capture_default_str();
  command->add_option("--penalty-window", o->penalty_window, "last tokens the penalties look at")
      ->capture_default_str();
  command->add_option("--seed", o->seed, "seed of the random choice")->capture_default_str();
}

std::string hash_text(uint64_t hash) {
  return fmt::format("logits {:016x}", hash);
}

}  // namespace okibi::apps
