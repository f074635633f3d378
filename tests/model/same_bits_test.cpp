// Promise P1 over every family: the same-bits machine finds nothing in the engine, and finds every
// bug that is planted into it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "engine/open_engine.h"
#include "platform/cpu_features.h"
#include "same_bits_machine.h"
#include "spoiled_backend.h"
#include "tiny_models.h"

namespace okibi::test {
namespace {

struct Case {
  std::string name;
  std::string path;
  std::string level;  // empty: the host's best
  KvCacheType kv_type = KvCacheType::kF16;
};

std::shared_ptr<Engine> open(const Case& c, int n_threads,
                             const engine::BackendWrapper& wrap = {}) {
  auto engine = engine::open_engine({.model_path = c.path,
                                     .cpu_level = c.level,
                                     .n_threads = n_threads,
                                     .n_ctx = 1024,
                                     .n_sessions = 8,
                                     .kv_type = c.kv_type},
                                    wrap);
  EXPECT_TRUE(engine.ok()) << c.name << ": " << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

void expect_same_bits(const Case& c, int n_programs, MachineOptions options = {}) {
  SCOPED_TRACE(c.name);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // Ten times slower: fewer programs, still several pages and batches long.
  n_programs = (n_programs + 2) / 3;
  options.max_length = 300;
#endif
  for (int n_threads : {1, 2}) {
    std::shared_ptr<Engine> subject = open(c, n_threads), cold = open(c, 1);
    ASSERT_TRUE(subject && cold);
    SameBitsMachine machine(subject, cold, options);
    std::mt19937_64 random(static_cast<uint64_t>(1000 + n_threads));
    for (int i = 0; i < n_programs; ++i) {
      const Program program = machine.random_program(random);
      if (machine.first_difference(program).has_value()) {
        const Program shortest = machine.shrink(program);
        FAIL() << n_threads << " threads, program " << i << " differs from the cold run:\n"
               << to_text(shortest);
      }
    }
  }
}

std::vector<std::string> host_levels() {
  std::vector<std::string> levels;
  const CpuLevel best = best_level(host_cpu());
  for (CpuLevel level :
       {CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kAmx}) {
    if (level <= best) levels.emplace_back(cpu_level_name(level));
  }
  return levels;
}

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

template <typename Bug>
void expect_found(const char* what, const Case& c) {
  SCOPED_TRACE(what);
  std::shared_ptr<Engine> subject =
      open(c, 1, [](std::unique_ptr<ops::Backend> inner) -> std::unique_ptr<ops::Backend> {
        return std::make_unique<Bug>(std::move(inner));
      });
  std::shared_ptr<Engine> cold = open(c, 1);
  ASSERT_TRUE(subject && cold);
  SameBitsMachine machine(subject, cold, {.max_length = 400});
  std::mt19937_64 random(5);
  for (int i = 0; i < 40; ++i) {
    const Program program = machine.random_program(random);
    if (!machine.first_difference(program).has_value()) continue;
    const Program shortest = machine.shrink(program);
    EXPECT_LE(shortest.size(), 5u) << to_text(shortest);
    EXPECT_TRUE(machine.first_difference(shortest).has_value());
    std::printf("%s, found by program %d, shrunk to:\n%s", what, i, to_text(shortest).c_str());
    return;
  }
  FAIL() << "the planted bug was not found in 40 programs";
}

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
