// The sampler: greedy is exact, filters keep what they say, draws follow the distribution and are
// the same on every machine.
#include "okibi/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "engine/sampler_math.h"

namespace okibi {
namespace {

// A vocabulary of n tokens of which some may not be sampled.
class FakeText final : public Text {
 public:
  explicit FakeText(int32_t n, std::set<TokenId> banned = {}) : n_(n), banned_(std::move(banned)) {}
  Result<std::vector<TokenId>> encode(std::string_view, bool) const override {
    return unsupported("not here");
  }
  Result<std::vector<TokenId>> encode_parts(std::span<const PromptPart>) const override {
    return unsupported("not here");
  }
  Result<std::vector<PromptPart>> chat_parts(std::span<const Message>, bool) const override {
    return unsupported("not here");
  }
  Result<std::string> chat_layout() const override { return unsupported("not here"); }
  std::string decode(std::span<const TokenId>, bool) const override { return {}; }
  std::unique_ptr<TextStream> stream(std::vector<std::string>) const override { return nullptr; }
  int32_t n_tokens() const override { return n_; }
  bool is_end_of_generation(TokenId) const override { return false; }
  bool is_sampleable(TokenId id) const override { return id < n_ && banned_.count(id) == 0; }
  TokenId find_by_bytes(std::string_view) const override { return -1; }

 private:
  int32_t n_;
  std::set<TokenId> banned_;
};

constexpr float kInf = std::numeric_limits<float>::infinity();

Sampler make(const SamplerOptions& options, const Text& text) {
  Result<Sampler> sampler = Sampler::create(options, text);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return std::move(sampler).value();
}

std::map<TokenId, int> draw_many(const SamplerOptions& options, const std::vector<float>& logits,
                                 int n, std::set<TokenId> banned = {}) {
  Sampler sampler = make(options, FakeText(static_cast<int32_t>(logits.size()), banned));
  std::map<TokenId, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(logits, {})];
  return counts;
}

std::set<TokenId> drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<TokenId> ids;
  for (const auto& [id, count] : draw_many(options, logits, 4000)) ids.insert(id);
  return ids;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOnATie) {
  Sampler sampler = make({}, FakeText(5));
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 3, 1, 3, 2}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5, -5, -5, -5, -5}, {}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 1, kInf, kInf, 2}, {}), 2);
}

TEST(Sampler, NeverTakesAnUnsampleableIdOrARowPastTheVocabulary) {
  const FakeText text(4, {0, 2});
  Sampler greedy = make({}, text);
  EXPECT_EQ(greedy.sample(std::vector<float>{9, 1, 8, 2, 99, 99}, {}), 3);
  EXPECT_EQ(greedy.sample(std::vector<float>{9, NAN, 8, NAN}, {}), 1);
  EXPECT_EQ(greedy.sample(std::vector<float>{9, -kInf, 8, -kInf}, {}), 1);
  Sampler hot = make({.temperature = 50}, text);
  for (int i = 0; i < 500; ++i) {
    const TokenId id = hot.sample(std::vector<float>{9, 1, 8, 2, 99, 99}, {});
    EXPECT_TRUE(id == 1 || id == 3) << id;
  }
}

TEST(Sampler, DrawsFollowTheSoftmaxAtTheTemperature) {
  const std::vector<float> logits = {0, 1, 2, -1};
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    const int n = 40000;
    std::map<TokenId, int> counts = draw_many({.temperature = temperature, .seed = 7}, logits, n);
    double sum = 0;
    for (float l : logits) sum += std::exp(l / temperature);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(logits[i] / temperature) / sum;
      const double sigma = std::sqrt(p * (1 - p) / n);
      EXPECT_NEAR(counts[static_cast<TokenId>(i)] / double(n), p, 4.5 * sigma) << temperature;
    }
  }
}

TEST(Sampler, TopKKeepsTheKLikeliestAndLowerIdsOnTies) {
  const std::vector<float> logits = {1, 2, 1, 2, 1, 0};
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 1}, logits), (std::set<TokenId>{1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3}, logits), (std::set<TokenId>{0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 100}, logits).size(), 6u);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesTheShare) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.15f),
                                     std::log(0.25f)};
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.45f}, logits), (std::set<TokenId>{1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.7f}, logits), (std::set<TokenId>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.85f}, logits), (std::set<TokenId>{1, 2, 3}));
  // Over what top-k left: 0.5 / 0.75 of it is the first.
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .top_p = 0.6f}, logits), (std::set<TokenId>{1}));
}

TEST(Sampler, TopPReachesFarIntoAFlatDistribution) {
  const std::vector<float> logits(1000, 0.5f);
  std::set<TokenId> ids;
  for (const auto& [id, n] : draw_many({.temperature = 1, .top_p = 0.5f}, logits, 5000)) {
    ids.insert(id);
  }
  EXPECT_LE(*ids.rbegin(), 500);  // ties keep the lower ids
  EXPECT_GT(ids.size(), 490u);
}

TEST(Sampler, MinPKeepsWhatIsLikelyBesideTheLikeliest) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.29f), std::log(0.05f),
                                     std::log(0.06f)};
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.4f}, logits), (std::set<TokenId>{0, 1}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.09f}, logits), (std::set<TokenId>{0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 1.0f}, logits), (std::set<TokenId>{0}));
}

TEST(Sampler, PenaltiesLookAtTheWindowOfTheHistory) {
  const FakeText text(4);
  const std::vector<float> logits = {3.0f, 2.5f, 2.0f, -1.0f};
  const std::vector<TokenId> history = {2, 0, 0, 1};
  EXPECT_EQ(make({.repeat_penalty = 2}, text).sample(logits, history), 0);  // 1.5, 1.25, 1, -1
  EXPECT_EQ(make({.repeat_penalty = 2, .penalty_window = 3}, text).sample(logits, history), 2);
  EXPECT_EQ(make({.presence_penalty = 1, .penalty_window = 1}, text).sample(logits, history), 0);
  EXPECT_EQ(make({.presence_penalty = 1, .penalty_window = 3}, text).sample(logits, history), 0);
  // 3 - 2 x 0.5 = 2, 2.5 - 0.5 = 2, 2 (past the window): lowest id.
  EXPECT_EQ(make({.frequency_penalty = 0.6f, .penalty_window = 3}, text).sample(logits, history),
            2);
  EXPECT_EQ(make({.repeat_penalty = 9, .penalty_window = 0}, text).sample(logits, history), 0);
  // A negative logit moves down, not up.
  EXPECT_EQ(make({.repeat_penalty = 2}, FakeText(2))
                .sample(std::vector<float>{-1.0f, -1.5f}, std::vector<TokenId>{0}),
            1);
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndTheyAreTheseOnEveryMachine) {
  std::vector<float> logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 37) % 100) / 25;
  const FakeText text(100);
  const SamplerOptions options = {.temperature = 1.3f, .top_k = 40, .top_p = 0.9f, .seed = 42};
  Sampler a = make(options, text), b = make(options, text);
  SamplerOptions other = options;
  other.seed = 43;
  Sampler c = make(other, text);
  std::vector<TokenId> first, second, third;
  for (int i = 0; i < 12; ++i) {
    first.push_back(a.sample(logits, {}));
    second.push_back(b.sample(logits, {}));
    third.push_back(c.sample(logits, {}));
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
  EXPECT_EQ(first, (std::vector<TokenId>{67, 8, 89, 43, 27, 29, 35, 48, 16, 59, 35, 51}));
}

TEST(Sampler, RefusesOptionsThatMakeNoSenseByName) {
  const FakeText text(4);
  const auto message = [&](const SamplerOptions& options) {
    const Result<Sampler> sampler = Sampler::create(options, text);
    return sampler.ok() ? std::string("accepted") : sampler.status().message();
  };
  EXPECT_NE(message({.temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.temperature = NAN}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_p = 0}).find("top-p"), std::string::npos);
  EXPECT_NE(message({.min_p = 1.5f}).find("min-p"), std::string::npos);
  EXPECT_NE(message({.repeat_penalty = 0}).find("repeat penalty"), std::string::npos);
  EXPECT_NE(message({.presence_penalty = kInf}).find("presence penalty"), std::string::npos);
  EXPECT_NE(message({.frequency_penalty = NAN}).find("frequency penalty"), std::string::npos);
  EXPECT_NE(Sampler::create({}, FakeText(2, {0, 1})).status().message().find("none"),
            std::string::npos);
}

TEST(Sampler, PortableExpIsTheExponential) {
  for (double x = 0; x > -700; x -= 0.0137) {
    const double expected = std::exp(x);
    ASSERT_NEAR(engine::portable_exp(x) / expected, 1.0, 4e-16) << x;
  }
  EXPECT_EQ(engine::portable_exp(0), 1.0);
  EXPECT_EQ(engine::portable_exp(-kInf), 0.0);
}

}  // namespace
}  // namespace okibi
