// The order of tests of the spec of qwen4exp, section 8.2, through the whole engine and to the bit:
// hashed n-grams, the recurrence, selected blocks and drafts that are rolled back. Formulas are
// tested in tests/ops, real values in qwen_oracle_test.cpp; images are left out.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "edited_model.h"
#include "okibi/engine.h"
#include "okibi/session.h"
#include "tiny_models.h"

namespace okibi::test {
namespace {

constexpr const char* kFamilies[] = {"qwen35", "qwen4exp"};
constexpr size_t kBudget = 32, kBlock = 4;
constexpr TokenId kReset = 256;

std::shared_ptr<Engine> open(const std::string& path, const SparseOptions& sparse = {},
                             KvCacheType kv = KvCacheType::kF16, int n_threads = 1) {
  auto engine = Engine::open({.model_path = path,
                              .n_threads = n_threads,
                              .n_ctx = 1024,
                              .n_sessions = 8,
                              .kv_type = kv,
                              .sparse = sparse});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *engine : nullptr;
}

std::unique_ptr<Session> new_session(Engine& engine) {
  auto session = engine.new_session();
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(session).value();
}

// Repeats itself, so that n-grams and selected blocks recur, and resets the n-grams now and then.
std::vector<TokenId> prompt(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (size_t i = 0; i < n; ++i) {
    tokens[i] = static_cast<TokenId>(random() % 320);
    if (i > 8 && random() % 4 == 0) tokens[i] = tokens[i - 1 - random() % 7];
    if (random() % 16 == 0) tokens[i] = kReset;
  }
  return tokens;
}

// The hash of every position's logits, appended in chunks of the given lengths; the last one
// repeats.
std::vector<uint64_t> row_hashes(Engine& engine, std::span<const TokenId> tokens,
                                 const std::vector<size_t>& lengths) {
  std::vector<uint64_t> hashes;
  auto session = new_session(engine);
  AppendOptions options;
  options.on_logits = [&](size_t, std::span<const float> row) {
    hashes.push_back(hash_floats(row));
  };
  size_t at = 0;
  for (size_t i = 0; at < tokens.size(); ++i) {
    const size_t want = lengths[std::min(i, lengths.size() - 1)];
    const size_t n = std::min(want, tokens.size() - at);
    EXPECT_TRUE(session->append(tokens.subspan(at, n), options).ok());
    at += n;
  }
  return hashes;
}

void append(Session& session, std::span<const TokenId> tokens) {
  const Status status = session.append(tokens);
  ASSERT_TRUE(status.ok()) << status.message();
}

// 8.2.2 and 8.2.3: chunks of one token, and around what the chunked recurrence would split at.
TEST(LongContext, PromptsGiveTheSameBitsInChunksOfAnyLength) {
  const std::vector<TokenId> tokens = prompt(200, 1);
  for (const char* family : kFamilies) {
    for (DType type : {DType::kF32, DType::kQ8_0}) {
      SCOPED_TRACE(std::string(family) + " " + std::string(name_of(type)));
      const auto engine = open(tiny_model(family, type));
      ASSERT_NE(engine, nullptr);
      const std::vector<uint64_t> whole = row_hashes(*engine, tokens, {tokens.size()});
      ASSERT_EQ(whole.size(), tokens.size());
      for (const std::vector<size_t>& lengths : std::vector<std::vector<size_t>>{
               {1}, {2}, {3}, {63}, {64}, {65}, {1, 199}, {3, 1, 63, 1, 64, 1, 65}}) {
        EXPECT_EQ(row_hashes(*engine, tokens, lengths), whole) << "chunks of " << lengths[0];
      }
    }
  }
}

// Every position's logits and selected positions are the same for all settings of the switches.
TEST(LongContext, SwitchesChangeNoBit) {
  const std::vector<TokenId> tokens = prompt(210, 2);
  for (KvCacheType kv : {KvCacheType::kF32, KvCacheType::kF16, KvCacheType::kQ8_0}) {
    std::vector<uint64_t> first;
    for (unsigned bits = 0; bits < 8; ++bits) {
      const auto engine = open(tiny_model("qwen4exp", DType::kQ4_K),
                               {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}, kv, 2);
      ASSERT_NE(engine, nullptr);
      std::vector<uint64_t> seen;
      AppendOptions options;
      options.on_logits = [&](size_t, std::span<const float> row) {
        seen.push_back(hash_floats(row));
      };
      options.on_selection = [&](size_t, uint32_t, std::span<const uint32_t> positions) {
        seen.insert(seen.end(), positions.begin(), positions.end());
      };
      auto session = new_session(*engine);
      for (size_t at = 0; at < tokens.size(); at += 70) {
        ASSERT_TRUE(session->append(std::span(tokens).subspan(at, 70), options).ok());
      }
      if (bits == 0) first = seen;
      EXPECT_EQ(seen, first) << "switches " << bits;
    }
  }
}

// 8.2.5: up to budget + 3 positions everything is selected and the bits are those of a dense model;
// from budget + 4 on a block is left out.
TEST(LongContext, SelectionBeginsBehindTheBudget) {
  for (DType type : {DType::kF32, DType::kQ8_0}) {
    const std::string path = tiny_model("qwen4exp", type);
    EditedModel edited(path);
    edited.keys().remove("qwen4exp.attention.compress_ratios");
    const auto sparse = open(path), dense = open(edited.write());
    ASSERT_TRUE(sparse && dense);
    const std::vector<TokenId> tokens = prompt(kBudget + 12, 3);
    for (const std::vector<size_t>& lengths :
         std::vector<std::vector<size_t>>{{1}, {tokens.size()}, {kBudget + 3, 1}}) {
      const auto a = row_hashes(*sparse, tokens, lengths), b = row_hashes(*dense, tokens, lengths);
      ASSERT_EQ(a.size(), tokens.size());
      for (size_t n = 1; n <= tokens.size(); ++n) {
        if (n < kBudget + kBlock) {
          EXPECT_EQ(a[n - 1], b[n - 1]) << n << " positions";
        } else {
          EXPECT_NE(a[n - 1], b[n - 1]) << n << " positions";
        }
      }
    }
  }
}

TEST(LongContext, SelectedPositionsAreWholeBlocksAndTheOpenOne) {
  const auto engine = open(tiny_model("qwen4exp", DType::kQ8_0));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().n_sparse_layers, 2u);
  const std::vector<TokenId> tokens = prompt(150, 4);
  auto session = new_session(*engine);
  size_t n_seen = 0;
  AppendOptions options;
  options.on_selection = [&](size_t index, uint32_t, std::span<const uint32_t> positions) {
    ++n_seen;
    const size_t n = index + 1, n_open = n % kBlock;
    const size_t n_blocks = std::min(n / kBlock, kBudget / kBlock);
    ASSERT_EQ(positions.size(), n_blocks * kBlock + n_open) << n << " positions";
    for (size_t i = 0; i < n_blocks * kBlock; ++i) {
      ASSERT_EQ(positions[i], positions[i / kBlock * kBlock] + i % kBlock);
      if (i % kBlock == 0) {
        ASSERT_EQ(positions[i] % kBlock, 0u);
      }
    }
    for (size_t i = 0; i < n_open; ++i) {
      ASSERT_EQ(positions[n_blocks * kBlock + i], n - n_open + i);
    }
  };
  append(*session, {});
  ASSERT_TRUE(session->append(tokens, options).ok());
  EXPECT_EQ(n_seen, 2 * tokens.size());
}

// 8.2.6: drafts of eight tokens of which 0 to 8 are accepted; what remains equals a fresh prefill.
void roll_back_drafts(Engine& engine, bool by_snapshot, uint32_t seed, size_t n_rounds) {
  std::mt19937 random(seed);
  auto session = new_session(engine);
  append(*session, prompt(25 + random() % 40, seed));
  for (size_t round = 0; round < n_rounds; ++round) {
    const std::vector<TokenId> draft = prompt(8, seed * 1000 + static_cast<uint32_t>(round));
    const size_t n_accepted = random() % 9, n_before = session->n_tokens();
    if (by_snapshot) {
      auto snapshot = session->snapshot();
      ASSERT_TRUE(snapshot.ok());
      append(*session, draft);
      ASSERT_TRUE(session->restore(*snapshot).ok());
      append(*session, std::span(draft).first(n_accepted));
    } else {
      append(*session, draft);
      ASSERT_TRUE(session->truncate(n_before + n_accepted).ok());
    }
    ASSERT_EQ(session->n_tokens(), n_before + n_accepted);
    if (round % 4 != 3) continue;
    auto fresh = new_session(engine);
    append(*fresh, session->tokens());
    ASSERT_EQ(session->logits_hash(), fresh->logits_hash()) << "round " << round;
    // The state behind the logits: what both make of the same next tokens.
    for (const TokenId next : {TokenId{5}, kReset, TokenId{77}, TokenId{5}, TokenId{5}}) {
      append(*fresh, {&next, 1});
      append(*session, {&next, 1});
      ASSERT_EQ(session->logits_hash(), fresh->logits_hash()) << "behind round " << round;
    }
  }
}

TEST(LongContext, DraftsRolledBackLeaveNothing) {
  for (const char* family : kFamilies) {
    const auto engine = open(tiny_model(family, DType::kQ8_0));
    ASSERT_NE(engine, nullptr);
    for (bool by_snapshot : {false, true}) {
      SCOPED_TRACE(std::string(family) + (by_snapshot ? ", snapshots" : ", truncation"));
      roll_back_drafts(*engine, by_snapshot, 11, 12);
    }
  }
}

TEST(SlowLongContext, DraftsRolledBackLeaveNothing) {
  for (const char* family : kFamilies) {
    for (KvCacheType kv : {KvCacheType::kF32, KvCacheType::kF16, KvCacheType::kQ8_0}) {
      const auto engine = open(tiny_model(family, DType::kQ4_K), {}, kv);
      ASSERT_NE(engine, nullptr);
      for (uint32_t seed = 20; seed < 24; ++seed) {
        SCOPED_TRACE(std::string(family) + ", seed " + std::to_string(seed));
        roll_back_drafts(*engine, seed % 2 == 0, seed, 60);
      }
    }
  }
}

// 8.2.7
TEST(LongContext, TwoSequencesInterleavedEqualTwoAlone) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const auto engine = open(tiny_model(family, DType::kQ8_0), {}, KvCacheType::kF16, 2);
    ASSERT_NE(engine, nullptr);
    const std::vector<TokenId> tokens[] = {prompt(140, 5), prompt(140, 6)};
    std::vector<uint64_t> alone[2], interleaved[2];
    for (int i : {0, 1}) alone[i] = row_hashes(*engine, tokens[i], {140});
    std::unique_ptr<Session> sessions[] = {new_session(*engine), new_session(*engine)};
    size_t at[] = {0, 0};
    std::mt19937 random(7);
    while (at[0] < 140 || at[1] < 140) {
      std::vector<std::thread> threads;
      for (int i : {0, 1}) {
        const size_t n = std::min<size_t>(1 + random() % 9, 140 - at[i]);
        if (n == 0) continue;
        threads.emplace_back([&, i, n, from = at[i]] {
          AppendOptions options;
          options.on_logits = [&, i](size_t, std::span<const float> row) {
            interleaved[i].push_back(hash_floats(row));
          };
          EXPECT_TRUE(sessions[i]->append(std::span(tokens[i]).subspan(from, n), options).ok());
        });
        at[i] += n;
      }
      for (std::thread& t : threads) t.join();
    }
    for (int i : {0, 1}) EXPECT_EQ(interleaved[i], alone[i]) << "sequence " << i;
  }
}

// Copies at every place within a block and at borders of pages, each going its own way.
TEST(LongContext, CopiesDivergeAndEqualSequencesOfTheirOwn) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const auto engine = open(tiny_model(family, DType::kQ8_0));
    ASSERT_NE(engine, nullptr);
    const std::vector<TokenId> tokens = prompt(130, 8);
    for (size_t n : {1, 2, 3, 4, 33, 34, 35, 36, 37, 62, 63, 64, 65, 127, 128, 129}) {
      auto first = new_session(*engine);
      append(*first, std::span(tokens).first(n));
      auto copy = first->fork();
      ASSERT_TRUE(copy.ok());
      Session* both[] = {first.get(), copy->get()};
      for (uint32_t step = 0; step < 3; ++step) {
        for (uint32_t i : {0u, 1u}) append(*both[i], prompt(1 + step * 3, 100 + step * 2 + i));
      }
      for (Session* s : both) {
        auto fresh = new_session(*engine);
        append(*fresh, s->tokens());
        EXPECT_EQ(s->logits_hash(), fresh->logits_hash()) << "copied at " << n;
      }
    }
  }
}

}  // namespace
}  // namespace okibi::test
