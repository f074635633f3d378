// Promise P1 over the hybrid Qwen families: recurrent state, hashed n-grams, experts and selected
// blocks give the same bits however a sequence came to be; the switches of sparse attention change
// none; and the machine finds bugs of the kind that such models breed.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "same_bits_cases.h"
#include "spoiled_backend.h"
#include "tiny_models.h"

namespace okibi::test {
namespace {

constexpr const char* kFamilies[] = {"qwen35", "qwen4exp"};
constexpr KvCacheType kKvTypes[] = {KvCacheType::kF32, KvCacheType::kF16, KvCacheType::kQ8_0};

// Several times the budget of 32, several pages of 64.
constexpr MachineOptions kQuick = {.max_length = 300, .n_steps = 12};

Case case_of(const std::string& family, DType type, KvCacheType kv = KvCacheType::kF16) {
  return {
      family + " " + std::string(name_of(type)) + ", K/V " + std::to_string(static_cast<int>(kv)),
      tiny_model(family, type), "", kv};
}

TEST(SameBitsQwen, HoldForBothFamiliesAndTheMainWeightTypes) {
  for (const char* family : kFamilies) {
    for (DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_K}) {
      expect_same_bits(case_of(family, type), 1, kQuick);
    }
  }
}

TEST(SameBitsQwen, HoldForEveryKeyAndValueType) {
  for (KvCacheType kv : {KvCacheType::kF32, KvCacheType::kQ8_0}) {
    expect_same_bits(case_of("qwen4exp", DType::kQ8_0, kv), 1, kQuick);
  }
}

// The subject runs with a switch off, the cold engine with all on.
TEST(SameBitsQwen, HoldWithTheSwitchesOff) {
  Case c = case_of("qwen4exp", DType::kQ8_0);
  for (const SparseOptions& sparse :
       {SparseOptions{.keep_pooled = false}, SparseOptions{.attend_selected = false},
        SparseOptions{.select_blocks = false}}) {
    c.sparse = sparse;
    c.name += ", a switch off";
    expect_same_bits(c, 1, kQuick);
  }
}

TEST(SlowSameBitsQwen, HoldForEveryLevelAndWeightType) {
  for (const std::string& level : host_levels()) {
    for (const char* family : kFamilies) {
      for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K,
                         DType::kQ6_K, DType::kIQ4_NL}) {
        Case c = case_of(family, type);
        c.name += ", " + level;
        c.level = level;
        expect_same_bits(c, 2);
      }
    }
  }
}

TEST(SlowSameBitsQwen, HoldForEveryWeightAndKeyType) {
  for (const char* family : kFamilies) {
    for (DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_K}) {
      for (KvCacheType kv : kKvTypes) expect_same_bits(case_of(family, type, kv), 3);
    }
  }
}

TEST(SlowSameBitsQwen, HoldForEverySettingOfTheSwitches) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    for (KvCacheType kv : kKvTypes) {
      Case c = case_of("qwen4exp", DType::kQ4_K, kv);
      c.sparse = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      c.name += ", switches " + std::to_string(bits);
      expect_same_bits(c, 3);
    }
  }
}

// --- Planted bugs -------------------------------------------------------------------------------

// Knows the sequences of the step.
class WatchingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void begin_step(const ops::BatchPlan& plan) override {
    spans_.assign(plan.sequences.begin(), plan.sequences.end());
    inner_->begin_step(plan);
  }

 protected:
  std::vector<ops::SequenceSpan> spans_;
};

// The first step after a fork loses its update of the pooled keys. (Zeros stand for what was there:
// what a page held before depends on the programs before, and shrinking repeats a program.)
class StalePooledKey final : public WatchingBackend {
 public:
  using WatchingBackend::WatchingBackend;
  void index_append(const ops::IndexKeys& keys, ops::Rows k) override {
    for (const ops::SequenceSpan& s : spans_) {
      if (s.n_past == 0 || s.src_slot == s.dst_slot) continue;
      for (uint32_t i = 0; i < s.n_rows; ++i) {
        const std::vector<float> nothing(inner_->read(k, s.first_row + i).size(), 0.0f);
        inner_->write(k, s.first_row + i, nothing);
      }
    }
    inner_->index_append(keys, k);
  }
};

// A chunk that begins inside a block pools the blocks it completes one block too late.
class PooledInTheWrongBlock final : public WatchingBackend {
 public:
  using WatchingBackend::WatchingBackend;
  void index_append(const ops::IndexKeys& keys, ops::Rows k) override {
    for (const ops::SequenceSpan& s : spans_) {
      if (s.n_past % 4 == 0) continue;
      for (uint32_t i = s.n_rows; i-- > 4;) {
        const std::span<const float> from = inner_->read(k, s.first_row + i - 4);
        const std::vector<float> row(from.begin(), from.end());
        inner_->write(k, s.first_row + i, row);
      }
    }
    inner_->index_append(keys, k);
  }
};

// A single token selects among one block too few: the last complete one is not seen.
class SelectsOneBlockShort final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void begin_step(const ops::BatchPlan& plan) override {
    spans_.assign(plan.sequences.begin(), plan.sequences.end());
    plan_ = plan;
    plan_.sequences = spans_;
    inner_->begin_step(plan_);
  }
  void select_blocks(int32_t layer, ops::Rows q) override {
    const std::vector<ops::SequenceSpan> right = spans_;
    for (ops::SequenceSpan& s : spans_) {
      // Far enough that blocks are selected either way.
      if (s.n_rows == 1 && s.n_past >= 44) s.n_past -= 4;
    }
    inner_->select_blocks(layer, q);
    std::copy(right.begin(), right.end(), spans_.begin());
  }

 private:
  std::vector<ops::SequenceSpan> spans_;
  ops::BatchPlan plan_;
};

// Recurrent state is kept in 16 bits between steps.
class StateInBF16 final : public WatchingBackend {
 public:
  using WatchingBackend::WatchingBackend;
  Status set_state(const ops::StateConfig& c) override {
    slot_.resize(c.floats_per_slot);
    return inner_->set_state(c);
  }
  void end_step() override {
    inner_->end_step();
    for (const ops::SequenceSpan& s : spans_) {
      inner_->download_slot(s.dst_slot, slot_);
      for (float& v : slot_) {
        v = std::bit_cast<float>((std::bit_cast<uint32_t>(v) + 0x8000u) & 0xffff0000u);
      }
      inner_->upload_slot(s.dst_slot, slot_);
    }
  }

 private:
  std::vector<float> slot_;
};

// The n-grams of a chunk's first token do not see the tokens before the chunk.
class NgramForgetsThePast final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void begin_step(const ops::BatchPlan& plan) override {
    spans_.assign(plan.sequences.begin(), plan.sequences.end());
    past_.assign(spans_.size(), {});
    for (size_t i = 0; i < spans_.size(); ++i) {
      past_[i].assign(spans_[i].past_tokens.size(), 256);  // the token that resets
      spans_[i].past_tokens = past_[i];
    }
    plan_ = plan;
    plan_.sequences = spans_;
    inner_->begin_step(plan_);
  }

 private:
  std::vector<ops::SequenceSpan> spans_;
  std::vector<std::vector<int32_t>> past_;
  ops::BatchPlan plan_;
};

TEST(SameBitsMachine, FindsAStalePooledKeyAfterAFork) {
  expect_found<StalePooledKey>("stale pooled key", case_of("qwen4exp", DType::kQ8_0));
}
TEST(SameBitsMachine, FindsKeysPooledInTheWrongBlock) {
  expect_found<PooledInTheWrongBlock>("wrong block", case_of("qwen4exp", DType::kQ8_0));
}
TEST(SameBitsMachine, FindsASelectionThatIsOneBlockShort) {
  expect_found<SelectsOneBlockShort>("one block short", case_of("qwen4exp", DType::kQ8_0));
}
TEST(SameBitsMachine, FindsRecurrentStateIn16Bits) {
  for (const char* family : kFamilies) {
    expect_found<StateInBF16>("state in BF16", case_of(family, DType::kQ8_0));
  }
}
TEST(SameBitsMachine, FindsNgramsThatForgetThePast) {
  expect_found<NgramForgetsThePast>("n-grams without a past", case_of("qwen4exp", DType::kQ8_0));
}

}  // namespace
}  // namespace okibi::test
