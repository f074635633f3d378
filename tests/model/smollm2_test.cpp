// The published SmolLM2-135M-Instruct against what its dequantised weights give in float64
// (tests/golden/smollm2-135m): token ids, logits, greedy text, and how far 8-bit activations stray.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "model/golden_model.h"
#include "okibi/generate.h"
#include "safetensors.h"

namespace okibi::testing {
namespace {

// Float32 against float64, at every position: what rounding may cost.
constexpr double kExactTolerance = 1e-3;
// 8-bit activations, log-probabilities of the sixteen likeliest tokens after the prompt.
constexpr double kQuantisedMeanTolerance = 0.12, kQuantisedMaxTolerance = 0.8;
constexpr double kQuantisedNllTolerance = 0.005;  // of the document's mean, relative
constexpr size_t kTop = 16;

const char* const kModel = OKIBI_SOURCE_DIR "/models/downloads/SmolLM2-135M-Instruct.Q4_1.gguf";

struct Case {
  std::string name, text, greedy_text;
  std::vector<TokenId> ids, greedy;
  std::vector<double> margins;
  double mean_nll = 0;
  std::vector<int32_t> top_ids;              // (n, 16)
  std::vector<float> top_logits, lse, last;  // (n, 16), (n), (vocab)
};

const std::vector<Case>& golden_cases() {
  static const std::vector<Case> cases = [] {
    const std::string folder = OKIBI_GOLDEN_DIR "/smollm2-135m/";
    const nlohmann::json golden = read_json(folder + "golden.json");
    const SafeTensors tensors(folder + "golden.safetensors");
    std::vector<Case> all;
    for (const auto& [name, entry] : golden.at("cases").items()) {
      all.push_back({.name = name,
                     .text = entry.at("text"),
                     .greedy_text = entry.at("greedy_text"),
                     .ids = entry.at("ids").get<std::vector<TokenId>>(),
                     .greedy = entry.at("greedy").get<std::vector<TokenId>>(),
                     .margins = entry.at("margins").get<std::vector<double>>(),
                     .mean_nll = entry.at("mean_nll"),
                     .top_ids = tensors.ints(name + ".top_ids"),
                     .top_logits = tensors.floats(name + ".top_logits"),
                     .lse = tensors.floats(name + ".logsumexp"),
                     .last = tensors.floats(name + ".last")});
    }
    return all;
  }();
  return cases;
}

const Case& golden_case(const std::string& name) {
  const std::vector<Case>& all = golden_cases();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Case& c) { return c.name == name; });
  EXPECT_NE(found, all.end()) << name;
  return *found;
}

double mean_nll(const std::vector<TokenId>& ids, const std::vector<std::vector<float>>& rows) {
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    sum += log_sum_exp(rows[i]) - rows[i][static_cast<size_t>(ids[i + 1])];
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// The largest difference of any golden number at any position.
double worst_difference(const Case& golden, const std::vector<std::vector<float>>& rows) {
  double worst = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    worst = std::max(worst, std::fabs(log_sum_exp(rows[i]) - golden.lse[i]));
    for (size_t j = i * kTop; j < (i + 1) * kTop; ++j) {
      const double difference =
          rows[i][static_cast<size_t>(golden.top_ids[j])] - golden.top_logits[j];
      worst = std::max(worst, std::fabs(difference));
    }
  }
  for (size_t j = 0; j < golden.last.size(); ++j) {
    worst = std::max<double>(worst, std::fabs(rows.back()[j] - golden.last[j]));
  }
  return worst;
}

// How much of the golden data a test walks: all of it, or what seconds allow.
enum class Extent { kAll, kQuick };
constexpr size_t kQuickTokens = 80, kQuickSteps = 12;

// Logits of every position and the greedy text, for weights that are exact.
void expect_exact(Engine& engine, Extent extent) {
  std::printf("  %s\n", engine.numeric_identity().c_str());
  double worst = 0;
  for (const Case& golden : golden_cases()) {
    if (extent == Extent::kQuick && golden.ids.size() > kQuickTokens) continue;
    SCOPED_TRACE(golden.name);
    Walk seen = walk(engine, golden.ids);
    ASSERT_EQ(seen.rows.size(), golden.ids.size());
    const double difference = worst_difference(golden, seen.rows);
    EXPECT_LE(difference, kExactTolerance);
    EXPECT_NEAR(mean_nll(golden.ids, seen.rows), golden.mean_nll, kExactTolerance);
    worst = std::max(worst, difference);
    const size_t n_steps = extent == Extent::kQuick ? std::min(kQuickSteps, golden.greedy.size())
                                                    : golden.greedy.size();
    expect_greedy(*seen.session, std::span(golden.greedy).first(n_steps),
                  std::span(golden.margins).first(n_steps), kExactTolerance);
  }
  std::printf("    largest difference %.2e (allowed %.0e)\n", worst, kExactTolerance);
}

// The file as it is, with the kernels of the level.
void expect_close(Engine& engine) {
  std::printf("  %s\n", engine.numeric_identity().c_str());
  double sum = 0, worst = 0;
  size_t n = 0;
  for (const Case& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const Walk seen = walk(engine, golden.ids);
    ASSERT_EQ(seen.rows.size(), golden.ids.size());
    const std::vector<float>& row = seen.rows.back();
    const double lse = log_sum_exp(row), golden_lse = golden.lse.back();
    for (size_t j = golden.top_ids.size() - kTop; j < golden.top_ids.size(); ++j) {
      const double ours = row[static_cast<size_t>(golden.top_ids[j])] - lse;
      const double difference = std::fabs(ours - (golden.top_logits[j] - golden_lse));
      sum += difference;
      worst = std::max(worst, difference);
      ++n;
    }
    if (golden.name != "document") continue;
    const double nll = mean_nll(golden.ids, seen.rows);
    EXPECT_NEAR(nll / golden.mean_nll, 1, kQuantisedNllTolerance);
    std::printf("    document: mean nll %.5f, exact %.5f (%+.2f %%)\n", nll, golden.mean_nll,
                100 * (nll / golden.mean_nll - 1));
  }
  ASSERT_EQ(n, golden_cases().size() * kTop);
  EXPECT_LE(sum / static_cast<double>(n), kQuantisedMeanTolerance);
  EXPECT_LE(worst, kQuantisedMaxTolerance);
  std::printf("    log-probabilities off by %.4f on average, %.4f at most\n",
              sum / static_cast<double>(n), worst);
}

// A file that is removed when the test ends.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name) : path_(OKIBI_BINARY_DIR "/" + name) {}
  ~ScratchFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override { check_model(); }

  static void check_model() {
    ASSERT_TRUE(std::filesystem::exists(kModel))
        << kModel << " is missing; `make models` fetches it (`make test` does so too)";
    ASSERT_EQ(golden_cases().size(), 8u);
  }
  static EngineOptions options(const std::string& level) {
    return {.model_path = kModel, .cpu_level = level, .n_ctx = 1024, .n_sessions = 1};
  }
  static void check_f32_file(const std::string& level, Extent extent) {
    const ScratchFile f32("smollm2-f32-" + std::to_string(getpid()) + ".gguf");
    const std::string command = std::string(OKIBI_BINARY_DIR "/okibi quantize '") + kModel + "' '" +
                                f32.path() + "' F32 > /dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    EngineOptions exact = options(level);
    exact.model_path = f32.path();
    exact.kv_type = KvCacheType::kF32;
    const std::shared_ptr<Engine> engine = open_engine(exact);
    ASSERT_NE(engine, nullptr);
    expect_exact(*engine, extent);
  }
  static void check_as_published(const std::string& level) {
    const std::shared_ptr<Engine> engine = open_engine(options(level));
    ASSERT_NE(engine, nullptr);
    expect_close(*engine);
  }
  static void check_f32_activations(const std::string& level, Extent extent) {
    EngineOptions exact = options(level);
    exact.activations = ActivationType::kF32;
    exact.kv_type = KvCacheType::kF32;
    const std::shared_ptr<Engine> engine = open_engine(exact);
    ASSERT_NE(engine, nullptr);
    expect_exact(*engine, extent);
  }
};

TEST_F(SmolLm2, TokenIdsAndChatLayoutAreThoseOfTheGoldenPrompts) {
  const std::shared_ptr<Engine> engine = open_engine(options(""));
  ASSERT_NE(engine, nullptr);
  const Text& text = engine->text();
  for (const Case& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const Result<std::vector<TokenId>> ids = text.encode(golden.text, true);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, golden.ids);
    EXPECT_EQ(text.decode(golden.greedy, true), golden.greedy_text);
    if (golden.name != "capital") continue;
    const Message question = {"user", "What is the capital of France?"};
    const auto parts = text.chat_parts({&question, 1}, false);
    ASSERT_TRUE(parts.ok()) << parts.status().message();
    const auto chat_ids = text.encode_parts(*parts);
    ASSERT_TRUE(chat_ids.ok()) << chat_ids.status().message();
    EXPECT_EQ(*chat_ids, golden.ids);
  }
}

// What generate must give: the likeliest token again and again, until one ends the reply.
std::vector<TokenId> follow_greedily(Session& session, size_t n_most) {
  std::vector<TokenId> tokens;
  while (tokens.size() < n_most) {
    tokens.push_back(largest(session.logits()));
    if (session.engine().text().is_end_of_generation(tokens.back())) break;
    EXPECT_TRUE(session.append({&tokens.back(), 1}).ok());
  }
  return tokens;
}

TEST_F(SmolLm2, GenerateStopsWhereTheReplyEndsAndStreamsItsText) {
  const std::shared_ptr<Engine> engine = open_engine(options(""));
  ASSERT_NE(engine, nullptr);
  const std::vector<TokenId>& ids = golden_case("sum").ids;
  auto start = engine->new_session();
  ASSERT_TRUE(start.ok());
  const auto reply = [&](std::span<const TokenId> prompt, GenerateOptions options) {
    std::string streamed;
    options.on_text = [&](std::string_view piece) {
      streamed += piece;
      return true;
    };
    auto session = (*start)->fork();
    EXPECT_TRUE(session.ok());
    auto result = generate(**session, prompt, options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(streamed, result->text);
    EXPECT_EQ(result->timings.n_prompt, prompt.size());
    EXPECT_EQ((*session)->n_tokens(), ids.size() + result->tokens.size() - 1);
    return std::move(result).value();
  };
  const GenerateResult whole = reply(ids, {});

  // From here on the prompt is already there.
  const Status prefilled = (*start)->append(ids);
  ASSERT_TRUE(prefilled.ok()) << prefilled.message();
  auto manual = (*start)->fork();
  ASSERT_TRUE(manual.ok());
  EXPECT_EQ(whole.tokens, follow_greedily(**manual, 512));
  EXPECT_EQ(whole.stop_reason, StopReason::kEndOfReply);
  EXPECT_EQ(whole.text, engine->text().decode(whole.tokens, false));
  ASSERT_GT(whole.text.size(), 8u);

  const GenerateResult two = reply({}, {.max_tokens = 2});
  EXPECT_EQ(two.stop_reason, StopReason::kMaxTokens);
  EXPECT_EQ(two.tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + 2));

  const std::string stop = whole.text.substr(4, 3);
  const GenerateResult cut = reply({}, {.stop = {"nowhere in it", stop}});
  EXPECT_EQ(cut.stop_reason, StopReason::kStopString);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST_F(SmolLm2, GenerateReportsCancellationAndAFullContext) {
  EngineOptions small = options("");
  small.n_ctx = 64;
  const std::shared_ptr<Engine> engine = open_engine(small);
  ASSERT_NE(engine, nullptr);
  const Case& golden = golden_cases()[0];
  std::atomic<bool> cancel{true};
  auto session = engine->new_session();
  ASSERT_TRUE(session.ok());
  auto stopped = generate(**session, golden.ids, {.cancel = &cancel});
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  EXPECT_EQ(stopped->stop_reason, StopReason::kCancelled);
  EXPECT_TRUE(stopped->tokens.empty());

  auto full = engine->new_session();
  ASSERT_TRUE(full.ok());
  std::vector<TokenId> long_prompt(engine->n_ctx() - 3, golden.ids[5]);
  auto result = generate(**full, long_prompt, {.max_tokens = 100});
  ASSERT_TRUE(result.ok()) << result.status().message();
  if (result->stop_reason != StopReason::kEndOfReply) {
    EXPECT_EQ(result->stop_reason, StopReason::kContextFull);
    EXPECT_EQ(result->tokens.size(), 4u);
  }
  long_prompt.resize(engine->n_ctx() + 1, golden.ids[5]);
  auto refused = engine->new_session();
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(generate(**refused, long_prompt, {}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ((*refused)->n_tokens(), 0u);
}

TEST_F(SmolLm2, TheF32FileMatchesShortPromptsOnTheBestLevel) {
  check_f32_file("", Extent::kQuick);
}

TEST_F(SmolLm2, FloatActivationsMatchShortPromptsOnTheBestLevel) {
  check_f32_activations("", Extent::kQuick);
}

TEST_F(SmolLm2, ThePublishedFileIsCloseOnTheBestLevel) {
  check_as_published("");
}

class SlowSmolLm2 : public SmolLm2, public ::testing::WithParamInterface<std::string> {};

TEST_P(SlowSmolLm2, TheF32FileMatchesAtEveryPosition) {
  check_f32_file(GetParam(), Extent::kAll);
}

TEST_P(SlowSmolLm2, FloatActivationsMatchAtEveryPosition) {
  check_f32_activations(GetParam(), Extent::kAll);
}

TEST_P(SlowSmolLm2, ThePublishedFileIsClose) {
  check_as_published(GetParam());
}

INSTANTIATE_TEST_SUITE_P(SlowLevels, SlowSmolLm2, ::testing::ValuesIn(host_levels()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace okibi::testing
