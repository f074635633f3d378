// Promise P1 over every family: the same-bits machine finds nothing in the engine, and finds every
// bug that is planted into it.
#include <gtest/gtest.h>

#include <vector>

#include "same_bits_cases.h"
#include "spoiled_backend.h"
#include "tiny_models.h"

namespace okibi::test {
namespace {

std::string oracle() {
  return OKIBI_GOLDEN_DIR "/lfm2vl-tiny/lfm2vl-tiny-f32.gguf";
}

TEST(SameBits, HoldForTheRecordedLfm2OnTheBestLevel) {
  expect_same_bits({"lfm2 oracle", oracle(), ""}, 6);
}

TEST(SameBits, HoldForBothFamiliesAndTheMainWeightTypes) {
  for (const char* family : {"llama", "lfm2"}) {
    for (DType type : {DType::kQ4_0, DType::kQ4_K, DType::kQ8_0}) {
      expect_same_bits(
          {std::string(family) + " " + std::string(name_of(type)), tiny_model(family, type), ""},
          2);
    }
  }
}

TEST(SameBits, HoldForEveryKeyAndValueType) {
  for (KvCacheType kv : {KvCacheType::kF32, KvCacheType::kF16, KvCacheType::kQ8_0}) {
    expect_same_bits({"llama Q8_0", tiny_model("llama", DType::kQ8_0), "", kv}, 2);
  }
}

// On levels without units for bfloat16 this repeats the tests above.
TEST(SameBits, HoldForBfloat16Activations) {
  for (const char* family : {"llama", "lfm2", "qwen35", "qwen4exp"}) {
    for (DType type : {DType::kQ8_0, DType::kF16, DType::kBF16}) {
      Case c{std::string(family) + " " + std::string(name_of(type)), tiny_model(family, type), ""};
      c.activations = ActivationType::kBf16;
      expect_same_bits(c, 1, {.max_length = 300, .n_steps = 12});
    }
  }
}

TEST(SlowSameBits, HoldForEveryLevelAndWeightType) {
  for (const std::string& level : host_levels()) {
    for (const char* family : {"llama", "lfm2"}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                         DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K,
                         DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
        expect_same_bits({level + " " + family + " " + std::string(name_of(type)),
                          tiny_model(family, type), level},
                         4);
      }
    }
  }
}

// --- Planted bugs -------------------------------------------------------------------------------

// One value of the first row moves by its last bit when another row is beside it.
class NeighbourDependentReduction final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void begin_step(const ops::BatchPlan& plan) override {
    has_neighbours_ = plan.sequences.size() > 1;
    inner_->begin_step(plan);
  }
  void rms_norm(ops::Rows in, ops::Vector g, float eps, ops::Rows out) override {
    inner_->rms_norm(in, g, eps, out);
    if (!has_neighbours_) return;
    std::vector<float> row(inner_->read(out, 0).begin(), inner_->read(out, 0).end());
    for (float& v : row) v *= 1.0000002f;
    inner_->write(out, 0, row);
  }

 private:
  bool has_neighbours_ = false;
};

// A fork's copy of the open page misses its last row.
class StaleTail final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void copy_page(ops::PageId src, ops::PageId dst, int32_t n) override {
    inner_->copy_page(src, dst, n > 0 ? n - 1 : 0);
  }
};

// Shared recurrent state is advanced in place: what a snapshot holds is one append too far.
class SnapshotMovesOn final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void begin_step(const ops::BatchPlan& plan) override {
    spans_.assign(plan.sequences.begin(), plan.sequences.end());
    inner_->begin_step(plan);
  }
  void end_step() override {
    inner_->end_step();
    for (const ops::SequenceSpan& span : spans_) {
      if (span.src_slot != 0) inner_->copy_slot(span.dst_slot, span.src_slot);
    }
  }

 private:
  std::vector<ops::SequenceSpan> spans_;
};

// Positions of a chunk that does not begin a sequence are off by one from the second chunk on.
class ChunkBorderPosition final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void begin_step(const ops::BatchPlan& plan) override {
    positions_.assign(plan.positions.begin(), plan.positions.end());
    for (size_t i = 0; i < positions_.size(); ++i) {
      const ops::SequenceSpan& span = plan.sequences[plan.row_sequence[i]];
      if (span.n_past > 64 && span.n_rows > 1 && i == span.first_row) positions_[i] -= 1;
    }
    ops::BatchPlan moved = plan;
    moved.positions = positions_;
    plan_ = moved;
    inner_->begin_step(plan_);
  }

 private:
  std::vector<int32_t> positions_;
  ops::BatchPlan plan_;
};

TEST(SameBitsMachine, FindsAReductionThatDependsOnNeighbours) {
  expect_found<NeighbourDependentReduction>("neighbour-dependent reduction", {"", oracle(), ""});
}
TEST(SameBitsMachine, FindsAStaleTailAfterAFork) {
  expect_found<StaleTail>("stale tail", {"", tiny_model("llama", DType::kQ8_0), ""});
}
TEST(SameBitsMachine, FindsASnapshotThatMovesOn) {
  expect_found<SnapshotMovesOn>("snapshot moves on", {"", oracle(), ""});
}
TEST(SameBitsMachine, FindsAPositionOffByOneAtAChunkBorder) {
  expect_found<ChunkBorderPosition>("chunk border", {"", oracle(), ""});
}

}  // namespace
}  // namespace okibi::test
