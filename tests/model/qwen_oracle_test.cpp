// The tiny models of the hybrid Qwen families against their official implementation: logits of
// every recorded position, the positions that every query attends to, the greedy continuation; on
// every level that this host runs.
//
// Tolerance: |difference| <= 1e-3 x max(1, standard deviation of the case's logits); a float64
// implementation meets 5e-5 (qwen4exp) and 5e-4 (qwen35, whose logits are ten times larger).
// Selected sets are equal: no case hangs on rounding, the gaps are 4e-5 and more.
#include <gtest/gtest.h>

#include <cstdio>

#include "model/golden_model.h"
#include "safetensors.h"

namespace okibi::testing {
namespace {

constexpr double kTolerance = 1e-3;

struct Golden {
  std::string folder;
  nlohmann::json cases;
  SafeTensors tensors;
  std::string model_path;
};

Golden read_golden(const std::string& name, const std::string& file) {
  const std::string folder = OKIBI_GOLDEN_DIR "/" + name + "/";
  return {folder, read_json(folder + "golden.json").at("text").at("cases"),
          SafeTensors(folder + "golden.safetensors"), folder + file};
}

// What a prompt gave: logits of the positions from `first` on, and the positions that each of those
// attends to per sparse layer.
struct Seen {
  std::unique_ptr<Session> session;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::vector<uint32_t>>> selected;  // [layer][row]
};

Seen run(Engine& engine, std::span<const TokenId> ids, size_t first) {
  Seen seen;
  Result<std::unique_ptr<Session>> session = engine.new_session();
  if (!session.ok()) {
    ADD_FAILURE() << session.status().message();
    return seen;
  }
  seen.selected.resize(engine.info().n_sparse_layers);
  AppendOptions options;
  options.on_logits = [&](size_t index, std::span<const float> row) {
    if (index >= first) seen.logits.emplace_back(row.begin(), row.end());
  };
  options.on_selection = [&](size_t index, uint32_t layer, std::span<const uint32_t> positions) {
    if (index >= first) seen.selected[layer].emplace_back(positions.begin(), positions.end());
  };
  const Status status = (*session)->append(ids, options);
  EXPECT_TRUE(status.ok()) << status.message();
  seen.session = std::move(session).value();
  return seen;
}

void check_logits(const Seen& seen, const std::vector<float>& want, double tolerance) {
  const size_t n_vocab = seen.logits[0].size();
  ASSERT_EQ(want.size(), seen.logits.size() * n_vocab);
  double worst = 0;
  for (size_t i = 0; i < seen.logits.size(); ++i) {
    for (size_t j = 0; j < n_vocab; ++j) {
      const double difference = std::fabs(seen.logits[i][j] - want[i * n_vocab + j]);
      ASSERT_LE(difference, tolerance) << "row " << i << ", id " << j;
      worst = std::max(worst, difference);
    }
  }
  std::printf("    %zu rows: largest difference %.2e (allowed %.2e)\n", seen.logits.size(), worst,
              tolerance);
}

// golden: uint8 (layers, rows, tokens).
void check_selected(const Seen& seen, const std::vector<uint8_t>& golden, size_t n_tokens) {
  const size_t n_rows = seen.logits.size();
  ASSERT_EQ(golden.size(), seen.selected.size() * n_rows * n_tokens);
  for (size_t layer = 0; layer < seen.selected.size(); ++layer) {
    ASSERT_EQ(seen.selected[layer].size(), n_rows);
    for (size_t r = 0; r < n_rows; ++r) {
      const uint8_t* row = golden.data() + (layer * n_rows + r) * n_tokens;
      std::vector<uint32_t> want;
      for (size_t t = 0; t < n_tokens; ++t) {
        if (row[t] != 0) want.push_back(static_cast<uint32_t>(t));
      }
      ASSERT_EQ(seen.selected[layer][r], want) << "layer " << layer << ", row " << r;
    }
  }
}

void check_model(const std::string& level, const Golden& golden) {
  const std::shared_ptr<Engine> engine = open_engine({.model_path = golden.model_path,
                                                      .cpu_level = level,
                                                      .n_threads = 2,
                                                      .n_ctx = 4096,
                                                      .n_sessions = 1,
                                                      .kv_type = KvCacheType::kF32});
  ASSERT_NE(engine, nullptr);
  std::printf("  %s: %s\n", level.c_str(), engine->numeric_identity().c_str());
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const std::string name = std::to_string(i) + ".";
    const auto ids = golden.cases[i].at("tokens").get<std::vector<TokenId>>();
    const std::vector<float> logits = golden.tensors.floats(name + "logits");
    const size_t n_rows = golden.tensors.shape(name + "logits")[0];
    const double tolerance = kTolerance * std::max(1.0, standard_deviation(logits));
    const Seen seen = run(*engine, ids, ids.size() - n_rows);
    ASSERT_EQ(seen.logits.size(), n_rows);
    check_logits(seen, logits, tolerance);
    if (golden.tensors.has(name + "selected")) {
      check_selected(seen, golden.tensors.bytes(name + "selected"), ids.size());
    }
    if (::testing::Test::HasFatalFailure()) return;
    expect_greedy(*seen.session, golden.cases[i].at("greedy").get<std::vector<TokenId>>(),
                  golden.cases[i].at("margins").get<std::vector<double>>(), tolerance);
  }
}

class QwenOracle : public ::testing::TestWithParam<std::string> {};

TEST_P(QwenOracle, Qwen35MatchesTheOfficialImplementationAtEveryPosition) {
  check_model(GetParam(), read_golden("qwen35-tiny", "qwen35-tiny-f32.gguf"));
}
TEST_P(QwenOracle, FlashNextTinyMatchesLogitsAndSelectedSets) {
  check_model(GetParam(), read_golden("qwen4exp-tiny", "qwen4exp-tiny-f32.gguf"));
}
TEST_P(QwenOracle, FlashNextSmallMatchesLogitsAndSelectedSets) {
  check_model(GetParam(), read_golden("qwen4exp-small", "qwen4exp-small-bf16.gguf"));
}
TEST_P(QwenOracle, FlashNextOfTheRealBudgetMatchesAcrossItsBorder) {
  check_model(GetParam(), read_golden("qwen4exp-budget", "qwen4exp-budget-f32.gguf"));
}

INSTANTIATE_TEST_SUITE_P(Levels, QwenOracle, ::testing::ValuesIn(host_levels()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace okibi::testing
