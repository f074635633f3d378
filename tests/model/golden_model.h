// What the tests against golden logits share: the levels of this host, opening a model for a check,
// and walking a prompt with every position's logits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "okibi/engine.h"
#include "okibi/session.h"
#include "platform/cpu_features.h"

namespace okibi::testing {

// Lowest first: "reference" and whatever this host runs above it.
inline std::vector<std::string> host_levels() {
  std::vector<std::string> levels;
  const CpuLevel best = best_level(host_cpu());
  for (CpuLevel level :
       {CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kAmx}) {
    if (level <= best) levels.emplace_back(cpu_level_name(level));
  }
  return levels;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path << " cannot be read";
  return nlohmann::json::parse(in, nullptr, false);
}

// Null, and a failure told, when the model does not open.
inline std::shared_ptr<Engine> open_engine(const EngineOptions& options) {
  Result<std::shared_ptr<Engine>> engine = Engine::open(options);
  if (!engine.ok()) {
    ADD_FAILURE() << options.model_path << ": " << engine.status().message();
    return nullptr;
  }
  return std::move(engine).value();
}

// The logits of every position of `ids`, and a session that holds them.
struct Walk {
  std::unique_ptr<Session> session;
  std::vector<std::vector<float>> rows;
};
inline Walk walk(Engine& engine, std::span<const TokenId> ids, uint32_t max_chunk = 0) {
  Walk result;
  Result<std::unique_ptr<Session>> session = engine.new_session();
  if (!session.ok()) {
    ADD_FAILURE() << session.status().message();
    return result;
  }
  AppendOptions options;
  options.max_chunk = max_chunk;
  options.on_logits = [&](size_t, std::span<const float> row) {
    result.rows.emplace_back(row.begin(), row.end());
  };
  const Status status = (*session)->append(ids, options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(result.rows.size(), ids.size());
  result.session = std::move(session).value();
  return result;
}

inline double log_sum_exp(std::span<const float> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float x : row) sum += std::exp(x - max);
  return max + std::log(sum);
}

inline double standard_deviation(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (float x : values) sum += x, squares += static_cast<double>(x) * x;
  const auto n = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
}

inline TokenId largest(std::span<const float> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Follows the golden greedy tokens from the session's position: each must be the largest logit here
// too, unless the golden margin at that step is below `slack`.
inline void expect_greedy(Session& session, std::span<const TokenId> greedy,
                          std::span<const double> margins, double slack) {
  ASSERT_EQ(greedy.size(), margins.size());
  for (size_t i = 0; i < greedy.size(); ++i) {
    if (margins[i] >= slack) {
      ASSERT_EQ(largest(session.logits()), greedy[i]) << "step " << i << ", margin " << margins[i];
    }
    const Status status = session.append({&greedy[i], 1});
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace okibi::testing
