// Measuring many questions about one picture, on two engines of one model in one process: one that
// keeps nothing and one that keeps what it is allowed to. Two views of the same thing:
//   blocks  all questions in one request, off-on-on-off; per block a first request, then repeats
//   cases   no reuse, new image, new questions on a known image, identical request; alternating
// Every answer of every request must have the same bits, and every cache must have done what the
// measurement assumes: both are checked here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "okibi/decision.h"
#include "okibi/engine.h"
#include "okibi/status.h"
#include "ops/roofs.h"

namespace okibi::apps {

struct DecisionsPlan {
  EngineOptions options;  // of the engine that keeps; the other has every budget at 0
  std::string image;      // the file's bytes
  std::string state;
  std::vector<Question> questions;
  uint32_t n_repeats = 5;
};

// Where the milliseconds of a request go. Parts of kTotal, which is measured around the whole.
enum DecisionsTime { kTotal, kDecode, kResize, kEncode, kTokenize, kPrefix, kSuffix, kRest };
constexpr size_t kDecisionsTimes = 8;
constexpr std::array<const char*, kDecisionsTimes> kDecisionsTimeNames = {
    "total", "decode", "resize", "encode", "tokenize", "prefix", "suffix", "readout"};

enum DecisionsLevel { kFiles, kViews, kStates, kAnswers };
constexpr size_t kDecisionsLevels = 4;
constexpr std::array<const char*, kDecisionsLevels> kDecisionsLevelNames = {"files", "views",
                                                                            "states", "answers"};

// One request, or, in the case without reuse, one request per question added up.
struct DecisionsSample {
  std::array<double, kDecisionsTimes> ms = {};
  std::array<uint64_t, kDecisionsLevels> hits = {}, misses = {};
  uint32_t n_prefix_tokens = 0, n_suffix_tokens = 0;
};

struct DecisionsBlock {
  bool is_on = false;
  std::vector<DecisionsSample> samples;  // the first request, then the repeats
  std::span<const DecisionsSample> repeats() const { return std::span(samples).subspan(1); }
};

enum DecisionsCase { kNoReuse, kNewImage, kNewQuestions, kIdentical };
constexpr size_t kDecisionsCases = 4;
constexpr std::array<const char*, kDecisionsCases> kDecisionsCaseNames = {
    "no reuse", "new image", "new questions", "identical"};

// Plain text, prefilled in an empty session: what the suffixes are held against.
struct PrefillRate {
  uint32_t n_tokens = 0;
  std::vector<double> seconds;
};

struct DecisionsAgreement {
  uint64_t n_answers = 0;  // compared
  uint64_t n_other_choices = 0, n_other_bits = 0;
  double largest_difference = 0;  // of a probability
  bool holds() const {
    return n_other_choices == 0 && n_other_bits == 0 && largest_difference == 0;
  }
};

// What the encoder's matrices could reach at most in the numbers they are computed in.
struct EncoderPeak {
  std::string name;
  double ops_per_s = 0;
  bool attention_is_slower = false;  // it runs in bfloat16, at half the peak of int8
};

struct DecisionsResult {
  std::array<DecisionsBlock, 4> blocks;
  std::array<std::vector<DecisionsSample>, kDecisionsCases> cases;
  std::array<PrefillRate, 2> prefill;  // of as many tokens as all suffixes, and of 512
  DecisionsAgreement agreement;
  std::vector<size_t> choices;                                 // the chosen option of each question
  Picture picture;                                             // without rows
  uint64_t encoder_matrix_ops = 0, encoder_attention_ops = 0;  // of all views, two per multiply-add
  EncoderPeak encoder_peak;
  ops::Roofs roofs;                         // the best of before and after
  std::array<double, 2> load_average = {};  // of the machine, before and after
  std::string identity;
  int n_threads = 0;
};

// Fails in words when a cache did not do what is assumed. Whether the answers agree is in the
// result: a difference is worth a report, too.
Result<DecisionsResult> run_decisions_bench(const DecisionsPlan& plan,
                                            const std::function<void(const std::string&)>& say);

// The value of a time in every sample.
std::vector<double> times_of(std::span<const DecisionsSample> samples, DecisionsTime time);

}  // namespace okibi::apps
