// Files of qwen35 and qwen4exp in which one key or tensor is not what it should be: they are
// refused or they run, and never do they end the process.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "edited_model.h"
#include "okibi/engine.h"
#include "okibi/session.h"

namespace okibi::test {
namespace {

struct File {
  std::string path, architecture;
};
const File kFiles[] = {
    {OKIBI_GOLDEN_DIR "/qwen4exp-tiny/qwen4exp-tiny-f32.gguf", "qwen4exp"},
    {OKIBI_GOLDEN_DIR "/qwen35-tiny/qwen35-tiny-f32.gguf", "qwen35"},
};

// How many of the edits were refused and how many ran.
struct Tally {
  size_t n_refused = 0, n_ran = 0;
};

void open_and_run(EditedModel& model, Tally* tally) {
  auto engine = Engine::open({.model_path = model.write(),
                              .n_threads = 1,
                              .n_ctx = 128,
                              .n_sessions = 1,
                              .kv_type = KvCacheType::kF32,
                              .max_batch_rows = 64,
                              .memory_limit_bytes = uint64_t{2} << 30});
  if (!engine.ok()) {
    EXPECT_FALSE(engine.status().message().empty());
    ++tally->n_refused;
    return;
  }
  ++tally->n_ran;
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 70; ++i) {
    tokens.push_back(i * 31 % static_cast<TokenId>((*engine)->info().n_vocab));
  }
  auto session = (*engine)->new_session();
  ASSERT_TRUE(session.ok()) << session.status().message();
  const Status status = (*session)->append(tokens);
  EXPECT_TRUE(status.ok()) << status.message();
}

bool is_of_the_model(const gguf::File::Entry& e, const File& file) {
  return e.key.starts_with(file.architecture + ".");
}

void try_numbers(const std::vector<uint64_t>& numbers) {
  for (const File& file : kFiles) {
    const EditedModel original(file.path);
    Tally tally;
    for (const gguf::File::Entry& e : original.original().entries()) {
      if (!is_of_the_model(e, file)) continue;
      for (uint64_t value : numbers) {
        SCOPED_TRACE(std::string(e.key) + " = " + std::to_string(value));
        EditedModel model(file.path);
        model.keys().set_u64(e.key, value);
        open_and_run(model, &tally);
      }
    }
    EXPECT_GT(tally.n_refused, tally.n_ran);
    EXPECT_GT(tally.n_ran, 0u);
    std::printf("    %s: %zu refused, %zu ran\n", file.architecture.c_str(), tally.n_refused,
                tally.n_ran);
  }
}

TEST(QwenHostile, ANumberUnderAnyKey) {
  try_numbers({0, 17, 1u << 20u, UINT64_MAX});
}
TEST(SlowQwenHostile, AnyNumberUnderAnyKey) {
  try_numbers({0,         1,    2,         3,         5,         7,          8,
               16,        17,   48,        64,        65,        255,        256,
               512,       1024, 1u << 20u, 1u << 30u, INT32_MAX, UINT32_MAX, uint64_t{1} << 62u,
               UINT64_MAX});
}

TEST(SlowQwenHostile, AnyTypeUnderAnyKey) {
  for (const File& file : kFiles) {
    const EditedModel original(file.path);
    Tally tally;
    for (const gguf::File::Entry& e : original.original().entries()) {
      if (!is_of_the_model(e, file)) continue;
      for (int kind = 0; kind < 9; ++kind) {
        SCOPED_TRACE(std::string(e.key) + ", kind " + std::to_string(kind));
        EditedModel model(file.path);
        gguf::Writer& keys = model.keys();
        const std::vector<std::string> texts = {"a", "b"};
        const std::vector<uint64_t> many(5000, 1);
        const int32_t negative[] = {-1, INT32_MIN};
        if (kind == 0) keys.set_string(e.key, "4");
        if (kind == 1) keys.set_strings(e.key, texts);
        if (kind == 2) keys.set_bool(e.key, true);
        if (kind == 3) keys.set_f32(e.key, 4.0f);
        if (kind == 4) keys.set_f32(e.key, std::numeric_limits<float>::quiet_NaN());
        if (kind == 5) keys.set_i32(e.key, -1);
        if (kind == 6) keys.set_u64s(e.key, {});
        if (kind == 7) keys.set_u64s(e.key, many);
        if (kind == 8) keys.set_i32s(e.key, negative);
        open_and_run(model, &tally);
      }
    }
    EXPECT_GT(tally.n_refused, tally.n_ran);
  }
}

// Arrays of the model with one element changed, one less and one more.
TEST(SlowQwenHostile, AnyElementOfAnyArray) {
  const File& file = kFiles[0];
  const EditedModel original(file.path);
  Tally tally;
  for (const gguf::File::Entry& e : original.original().entries()) {
    if (!is_of_the_model(e, file) || e.value.type != gguf::ValueType::kArray) continue;
    std::vector<uint64_t> values;
    if (e.value.element_type == gguf::ValueType::kBool) {
      const std::vector<bool> flags = *original.original().get_bools(e.key);
      for (bool flag : flags) values.push_back(flag ? 1 : 0);
    } else {
      values = *original.original().get_u64s(e.key);
    }
    const auto run = [&](const std::vector<uint64_t>& changed) {
      EditedModel model(file.path);
      if (e.value.element_type == gguf::ValueType::kBool) {
        const auto flags = std::make_unique<bool[]>(changed.size());
        for (size_t i = 0; i < changed.size(); ++i) flags[i] = changed[i] != 0;
        model.keys().set_bools(e.key, {flags.get(), changed.size()});
      } else {
        model.keys().set_u64s(e.key, changed);
      }
      open_and_run(model, &tally);
    };
    for (size_t i = 0; i < values.size(); ++i) {
      for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{4271}, uint64_t{4272},
                             uint64_t{INT32_MAX}, UINT64_MAX, UINT64_MAX - 500}) {
        SCOPED_TRACE(std::string(e.key) + " at " + std::to_string(i) + " = " +
                     std::to_string(value));
        std::vector<uint64_t> changed = values;
        changed[i] = value;
        run(changed);
      }
    }
    std::vector<uint64_t> shorter = values, longer = values;
    shorter.pop_back();
    longer.push_back(0);
    run(shorter);
    run(longer);
  }
  EXPECT_GT(tally.n_refused, 0u);
}

// Tensors of another type, another shape of as many values, and full of what is no number.
TEST(QwenHostile, AnyTensorOfAnotherKind) {
  for (const File& file : kFiles) {
    const EditedModel original(file.path);
    Tally tally;
    for (const EditedModel::Tensor& t : original.tensors) {
      const bool is_layer = t.name.starts_with("blk.");
      if (is_layer && t.name[4] != '1' && t.name[4] != '3') continue;
      for (int kind = 0; kind < 5; ++kind) {
        SCOPED_TRACE(t.name + ", kind " + std::to_string(kind));
        EditedModel model(file.path);
        EditedModel::Tensor& changed = model.tensor(t.name);
        uint64_t n = 1;
        for (uint64_t d : changed.ne) n *= d;
        if (kind == 0) changed.type = DType::kI32;
        if (kind == 1) {
          changed.type = DType::kF16;
          changed.bytes.assign(n * 2, 0);
        }
        if (kind == 2) changed.ne = {n};
        if (kind == 3) changed.ne = {1, n};
        if (kind == 4) std::memset(changed.bytes.data(), 0xff, changed.bytes.size());
        open_and_run(model, &tally);
      }
    }
    EXPECT_GT(tally.n_refused, 0u);
    EXPECT_GT(tally.n_ran, 0u);
  }
}

}  // namespace
}  // namespace okibi::test
