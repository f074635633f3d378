// The rows that a step drops behind its last attention (ops: keep_tails) change no bit of any
// logits: random sequences of chunks, several in a step, whose outputs are wanted at the last row,
// from the middle on, nowhere or everywhere, against one token at a time on an engine that keeps
// all rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "edited_model.h"
#include "engine/scheduler.h"
#include "same_bits_cases.h"
#include "spoiled_backend.h"
#include "tiny_models.h"

namespace okibi::test {
namespace {

// The step as it was before rows were dropped.
class KeepsAllRows final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void keep_tails(uint32_t, std::span<const ops::Rows>) override {}
};

// A planted bug: what convolutions reach back to is one row short.
class OneRowShort final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void keep_tails(uint32_t n_before, std::span<const ops::Rows> inouts) override {
    inner_->keep_tails(n_before > 0 ? n_before - 1 : 0, inouts);
  }
};

template <typename T>
std::unique_ptr<ops::Backend> wrapped(std::unique_ptr<ops::Backend> inner) {
  return std::make_unique<T>(std::move(inner));
}

// What one sequence does in a step: outputs from first_output on.
struct Share {
  uint32_t n_tokens = 0, first_output = 0;
};
using Plan = std::vector<std::vector<Share>>;  // by step, then sequence

constexpr uint32_t kSequences = 2;

// A hundred pairs of shares of 0 to 4 and of 9 rows in random order, then single tokens.
Plan make_plan(uint32_t seed) {
  std::vector<Share> shares = {{}};
  for (uint32_t n : {1u, 2u, 3u, 4u, 9u}) {
    for (uint32_t first : {0u, n / 2, n - 1, n}) {
      if (first != n / 2 || (n / 2 > 0 && n / 2 < n - 1)) shares.push_back({n, first});
    }
  }
  Plan plan;
  for (const Share& a : shares) {
    for (const Share& b : shares) {
      if (a.n_tokens + b.n_tokens > 0) plan.push_back({a, b});
    }
  }
  std::shuffle(plan.begin(), plan.end(), std::mt19937(seed));
  plan.resize(100);
  for (int i = 0; i < 3; ++i) plan.push_back({{1, 0}, {1, 0}});
  return plan;
}

using Logits = std::map<uint32_t, std::vector<float>>;  // by position

// The logits that the plan wants of each sequence; every third step wants labels only.
const std::vector<TokenId> kLabels = {300, 5, 77, 78};
std::vector<Logits> run(Engine& engine, const Plan& plan, bool with_labels) {
  std::vector<Logits> all(kSequences);
  std::vector<std::vector<TokenId>> tokens(kSequences);
  std::mt19937 random(9);
  for (auto& of_sequence : tokens) {
    for (int i = 0; i < 4000; ++i) of_sequence.push_back(static_cast<TokenId>(random() % 320));
  }
  engine.scheduler().call([&](engine::Core& core) {
    std::vector<reuse::Sequence> sequences;
    for (uint32_t s = 0; s < kSequences; ++s) sequences.push_back(core.new_sequence());
    for (size_t step = 0; step < plan.size(); ++step) {
      std::vector<engine::StepItem> items;
      for (uint32_t s = 0; s < kSequences; ++s) {
        const Share& share = plan[step][s];
        if (share.n_tokens == 0) continue;
        reuse::Sequence& sequence = sequences[s];
        const uint32_t n_past = sequence.n_tokens();
        ASSERT_TRUE(core.prepare(sequence, share.n_tokens).ok());
        engine::StepItem& item = items.emplace_back();
        item.sequence = &sequence;
        item.tokens = std::span(tokens[s]).subspan(n_past, share.n_tokens);
        item.first_output = share.first_output;
        if (with_labels && step % 3 == 0) item.labels = kLabels;
        item.on_logits = [&all, s, n_past](uint32_t i, std::span<const float> logits) {
          all[s][n_past + i].assign(logits.begin(), logits.end());
        };
      }
      core.run_step(items);
    }
  });
  return all;
}

Plan one_at_a_time(const Plan& plan) {
  uint32_t n[kSequences] = {};
  for (const std::vector<Share>& step : plan) {
    for (uint32_t s = 0; s < kSequences; ++s) n[s] += step[s].n_tokens;
  }
  Plan single;
  for (uint32_t s = 0; s < kSequences; ++s) {
    for (uint32_t i = 0; i < n[s]; ++i) {
      single.emplace_back(kSequences)[s] = {.n_tokens = 1, .first_output = 0};
    }
  }
  return single;
}

// Positions whose logits differ.
size_t n_wrong(const std::vector<Logits>& got, const std::vector<Logits>& want) {
  size_t n = 0, n_compared = 0;
  for (uint32_t s = 0; s < kSequences; ++s) {
    for (const auto& [position, logits] : got[s]) {
      const std::vector<float>& all = want[s].at(position);
      std::vector<float> right = all;
      if (logits.size() == kLabels.size()) {
        right.clear();
        for (TokenId label : kLabels) right.push_back(all[static_cast<size_t>(label)]);
      }
      if (logits != right) ++n;
      ++n_compared;
    }
  }
  EXPECT_GT(n_compared, 200u);
  return n;
}

std::shared_ptr<Engine> open_long(Case c, int n_threads, const engine::BackendWrapper& wrap = {}) {
  auto engine = engine::open_engine({.model_path = c.path,
                                     .cpu_level = c.level,
                                     .n_threads = n_threads,
                                     .n_ctx = 4096,
                                     .n_sessions = 4,
                                     .kv_type = c.kv_type},
                                    wrap);
  EXPECT_TRUE(engine.ok()) << c.name << ": " << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

void expect_tails_change_nothing(const Case& c) {
  SCOPED_TRACE(c.name);
  const Plan plan = make_plan(4);
  const auto all_rows = open_long(c, 1, wrapped<KeepsAllRows>);
  ASSERT_TRUE(all_rows);
  const std::vector<Logits> want = run(*all_rows, one_at_a_time(plan), false);
  for (int n_threads : {1, 2}) {
    const auto subject = open_long(c, n_threads);
    ASSERT_TRUE(subject);
    EXPECT_EQ(n_wrong(run(*subject, plan, n_threads == 1), want), 0u);
  }
}

// The tiny lfm2 with two convolutions behind its last attention.
struct LongTail {
  LongTail() : model(tiny_model("lfm2", DType::kQ4_0)) {
    model.copy_block(0, 4);
    model.copy_block(2, 5);
    model.keys().set_u32("lfm2.block_count", 6);
    const std::vector<int32_t> kv = {0, 2, 0, 2, 0, 0};
    model.keys().set_i32s("lfm2.attention.head_count_kv", kv);
    c = {"lfm2 with two convolutions at its end", model.write(), ""};
  }
  EditedModel model;
  Case c;
};

constexpr KvCacheType kKvTypes[] = {KvCacheType::kF16, KvCacheType::kQ8_0};

TEST(Tails, ChangeNoBitBehindTwoConvolutions) {
  LongTail tail;
  for (KvCacheType kv : kKvTypes) {
    tail.c.kv_type = kv;
    expect_tails_change_nothing(tail.c);
  }
}

TEST(Tails, ChangeNoBitBehindOneConvolution) {
  const std::string path = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/lfm2vl-tiny-f32.gguf";
  expect_tails_change_nothing({"lfm2 oracle", path, ""});
}

TEST(Tails, ChangeNoBitBehindAttention) {
  for (const char* family : {"llama", "lfm2", "qwen35"}) {
    for (KvCacheType kv : kKvTypes) {
      expect_tails_change_nothing({family, tiny_model(family, DType::kQ4_K), "", kv});
    }
  }
}

TEST(SlowTails, ChangeNoBitOnAnyLevel) {
  LongTail tail;
  for (const std::string& level : host_levels()) {
    tail.c.level = level;
    expect_tails_change_nothing(tail.c);
    for (const char* family : {"llama", "qwen35"}) {
      expect_tails_change_nothing({family, tiny_model(family, DType::kQ8_0), level});
    }
  }
}

TEST(Tails, OneRowTooFewIsFound) {
  LongTail tail;
  const Plan plan = make_plan(4);
  const auto all_rows = open_long(tail.c, 1, wrapped<KeepsAllRows>);
  const auto spoiled = open_long(tail.c, 1, wrapped<OneRowShort>);
  ASSERT_TRUE(all_rows && spoiled);
  EXPECT_GT(n_wrong(run(*spoiled, plan, false), run(*all_rows, one_at_a_time(plan), false)), 0u);
}

TEST(SameBitsMachine, FindsATailOneRowShort) {
  expect_found<OneRowShort>("tail one row short",
                            {"", OKIBI_GOLDEN_DIR "/lfm2vl-tiny/lfm2vl-tiny-f32.gguf", ""});
}

}  // namespace
}  // namespace okibi::test
