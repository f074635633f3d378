// Decisions: typed questions about one state, answered with probabilities. The state is prefilled
// once; each question costs its own tokens; all questions run as one batch.
// The questions and answers are those of the System One API.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "okibi/engine.h"
#include "okibi/picture.h"
#include "okibi/status.h"

namespace okibi {

enum class QuestionType { kNoul, kChoice, kScore };

// Texts are already rendered: structured JSON values have become text, `json` keeps them as sent.
struct Option {
  std::string key;          // choice: the caller's key; score: unused; noul: "true" / "false"
  std::string description;  // may be empty
  std::string json;         // the value exactly as sent, for echoing in `legend`; may be empty
};

struct Question {
  std::string id;
  QuestionType type = QuestionType::kNoul;
  std::string instructions;     // may be empty
  std::vector<Option> options;  // noul: exactly two, "true" first
};

// The orders in which a question's options are shown; probabilities are averaged over them. Two: as
// given and reversed. All: every rotation (of two options: both orders).
enum class OptionOrder { kOff, kTwo, kAll };

// Divides a question's label logits before the softmax; fitted per type on labelled questions.
struct Calibration {
  double noul = 1, choice = 1, score = 1;
  std::string model;  // what it was fitted for, for people; empty: not said
  double of(QuestionType type) const {
    return type == QuestionType::kNoul ? noul : type == QuestionType::kChoice ? choice : score;
  }
};

struct DecisionRequest {
  std::string state;
  std::vector<Question> questions;
  bool want_outside_mass = false;  // needs the whole output product

  // Pictures stand where their mark (picture_mark) stands in the state or in a question as it is
  // shown; those without a mark anywhere stand before the state, in order.
  std::vector<Picture> pictures;

  OptionOrder order = OptionOrder::kOff;
  std::optional<Calibration> calibration;
  std::string scope;  // callers of different scopes share nothing that is kept
  // Bytes of `state`, ascending, where a prefix ends that other requests may begin with too: kept
  // as well as the whole state. In tokens an end is the last boundary that stands whether the text
  // goes on, breaks the line there or ends; never inside a picture.
  std::vector<size_t> prefix_ends;
  // Nothing beyond those ends is kept or taken from what is kept, label logits neither; without
  // an end nothing at all.
  bool only_prefix_ends = false;
  bool use_kept_answers = true;
  const std::atomic<bool>* cancel = nullptr;  // checked between steps
};

// What stands for picture `index` in the texts of a request: its number between two bytes that
// UTF-8 never has, so no client's text can hold one.
std::string picture_mark(size_t index);

struct Answer {
  std::string id;
  QuestionType type = QuestionType::kNoul;
  std::vector<double> probabilities;  // in option order, sum 1
  size_t best = 0;                    // index of the largest; lowest on a tie
  double score = 0;                   // score: sum of index x probability; noul: P(true)
  double confidence = 0;              // TypeSafe's rule; not for noul
  double outside_mass = -1;           // share of the whole vocabulary outside the labels, if asked
                                      // (largest over the orders)
  double order_spread = 0;            // largest difference of a probability between orders
  uint32_t n_suffix_tokens = 0;       // of all orders
  bool is_calibrated = false;
  bool was_kept = false;           // every order's logits were known: no inference
  uint64_t label_logits_hash = 0;  // over the label logits' bits, order by order
};

struct DecisionTiming {
  double tokenize_ms = 0, prefix_ms = 0, suffix_ms = 0, total_ms = 0;
};

struct DecisionResult {
  std::vector<Answer> answers;  // in question order
  uint32_t n_prefix_tokens = 0;
  uint32_t n_known_prefix_tokens = 0;  // of these, kept from an earlier request
  uint32_t n_kept_prefix_tokens = 0;   // of these, newly kept for a later one
  uint32_t n_suffix_tokens = 0;        // of all questions together
  DecisionTiming timing;
};

// Reads the `questions` object of a System One body (and nothing else): ids, types, criteria, with
// every rule of the format checked. Errors name the question and what is wrong with it.
Result<std::vector<Question>> parse_questions(std::string_view json);

// Answers all questions about the state. One-option choices need no inference.
Result<DecisionResult> decide(Engine& engine, const DecisionRequest& request);

// The response body: `model`, `answers`, `usage`, as the API has them.
std::string answers_json(const DecisionRequest& request, const DecisionResult& result,
                         std::string_view model_name);

// A calibration file: {"temperatures": {"noul": T, "choice": T, "score": T}, "model": "..."};
// unknown members are skipped, a missing type has temperature 1.
Result<Calibration> parse_calibration(std::string_view json);
std::string calibration_json(const Calibration& calibration);

}  // namespace okibi
