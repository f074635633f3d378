#include "decide/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/check.h"
#include "decide/json_value.h"
#include "decide/question.h"
#include "reuse/vision_cache.h"

namespace okibi::decision {

namespace {

// The id is shown to the model only where nothing else says what is asked.
std::string instructions_of(const Question& question) {
  if (!question.instructions.empty()) return question.instructions;
  const std::string id = quote_json(question.id);
  switch (question.type) {
    case QuestionType::kNoul:
      return fmt::format("Decide whether {} is true or false.", id);
    case QuestionType::kChoice:
      return fmt::format("Choose the option that fits best for {}.", id);
    case QuestionType::kScore:
      return fmt::format("Choose the level that fits best for {}.", id);
  }
  return "";
}

constexpr size_t kLetters = 26;

std::string option_line(const Question& question, size_t i, const Label& label) {
  const Option& option = question.options[i];
  std::string line = label.text + ": ";
  switch (question.type) {
    case QuestionType::kNoul:
      line += option.key;
      break;
    case QuestionType::kChoice:
      line += quote_json(option.key);
      break;
    case QuestionType::kScore:
      line += fmt::format("{}", i);
      break;
  }
  if (option.description.empty()) return line;
  // A structured description is JSON on one line already.
  const bool is_structured = option.description == option.json;
  return line + " - " + (is_structured ? option.description : quote_json(option.description));
}

std::string labels_list(std::span<const Label> labels) {
  std::string out = labels[0].text;
  for (size_t i = 1; i < labels.size(); ++i) {
    out += (i + 1 < labels.size() ? ", " : " or ") + labels[i].text;
  }
  return out;
}

// The candidates after the letters, in their order.
std::vector<std::string> further_labels() {
  std::vector<std::string> out;
  for (char a = 'A'; a <= 'Z'; ++a) {
    for (char b = 'A'; b <= 'Z'; ++b) out.push_back({a, b});
  }
  for (int i = 0; i < 1000; ++i) out.push_back(fmt::format("{}", i));
  return out;
}

// Splits a text at its picture marks: text, picture, text, picture, ..., text.
struct Pieces {
  std::vector<std::string> texts;  // one more than pictures
  std::vector<size_t> pictures;    // indices into the request's
};
Pieces split_at_marks(std::string_view text, const DecisionRequest& request) {
  Pieces pieces;
  pieces.texts.emplace_back();
  while (!request.picture_marker.empty()) {
    const size_t at = text.find(request.picture_marker);
    if (at == std::string_view::npos) break;
    const size_t number = at + request.picture_marker.size();
    const size_t end = text.find(';', number);
    size_t index = 0;
    for (size_t i = number; i < end && i < text.size(); ++i) {
      index = index * 10 + static_cast<size_t>(text[i] - '0');
    }
    CHECK(end != std::string_view::npos && index < request.pictures.size(), "mark of picture %zu",
          index);
    pieces.texts.back() += text.substr(0, at);
    pieces.texts.emplace_back();
    pieces.pictures.push_back(index);
    text = text.substr(end + 1);
  }
  pieces.texts.back() += text;
  return pieces;
}

// Marks of the pictures that nothing in the request mentions: they come before the state.
std::string marks_in_front(const DecisionRequest& request) {
  std::string all = request.state;
  for (const Question& question : request.questions) {
    all += question.instructions;
    for (const Option& option : question.options) all += option.description;
  }
  std::string out;
  for (size_t i = 0; i < request.pictures.size(); ++i) {
    const std::string mark = picture_mark(request.picture_marker, i);
    if (all.find(mark) == std::string::npos) out += mark;
  }
  return out;
}

// A user message with pictures to tokens with rows.
Result<Prompt> encode_message(Engine* engine, const Text& text, const DecisionRequest& request,
                              std::string content) {
  const Message message{.role = "user", .content = std::move(content)};
  OKIBI_ASSIGN_OR_RETURN(const std::vector<PromptPart> laid_out,
                         text.chat_parts(std::span(&message, 1), /*enable_thinking=*/false));
  std::vector<PromptPart> parts;
  std::vector<Picture> pictures;
  for (const PromptPart& part : laid_out) {
    const Pieces pieces = split_at_marks(part.text, request);
    for (size_t i = 0; i < pieces.texts.size(); ++i) {
      if (i > 0) {
        const Picture& picture = request.pictures[pieces.pictures[i - 1]];
        parts.push_back({picture.prompt_text, /*trusted=*/true});
        pictures.push_back(picture);
      }
      if (!pieces.texts[i].empty()) parts.push_back({pieces.texts[i], part.trusted});
    }
  }
  OKIBI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, text.encode_parts(parts));
  if (pictures.empty()) return Prompt{std::move(tokens), {}};
  CHECK(engine != nullptr, "%zu pictures without an engine", pictures.size());
  return engine->place_pictures(std::move(tokens), pictures);
}

// How far two prompts are the same tokens and pictures.
size_t n_common(const Prompt& a, const Prompt& b) {
  size_t n = std::min(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < n; ++i) {
    if (a.tokens[i] != b.tokens[i]) n = i;
  }
  for (size_t i = 0; i < std::max(a.rows.size(), b.rows.size()); ++i) {
    const bool both = i < a.rows.size() && i < b.rows.size();
    if (both && a.rows[i].first == b.rows[i].first &&
        a.rows[i].rows->view == b.rows[i].rows->view) {
      continue;
    }
    if (i < a.rows.size()) n = std::min(n, a.rows[i].first);
    if (i < b.rows.size()) n = std::min(n, b.rows[i].first);
    break;
  }
  // Never between the rows of a view.
  for (const Prompt::Rows& r : a.rows) {
    if (r.first < n && n < r.first + r.rows->n_rows) n = r.first;
  }
  return n;
}

}  // namespace

std::string state_text(std::string_view state) {
  return fmt::format("State:\n{}\n\n", state);
}

std::string question_text(const Question& question, std::span<const size_t> order,
                          std::span<const Label> labels) {
  CHECK(order.size() == question.options.size() && order.size() <= labels.size(),
        "%zu options, %zu in order, %zu labels", question.options.size(), order.size(),
        labels.size());
  std::string out = fmt::format("Question: {}\n\nOptions:\n", instructions_of(question));
  for (size_t i = 0; i < order.size(); ++i)
    out += option_line(question, order[i], labels[i]) + '\n';
  if (order.size() <= kLetters) {
    return out + fmt::format("\nAnswer with exactly one letter: {}.",
                             labels_list(labels.first(order.size())));
  }
  return out + "\nAnswer with exactly one of the labels before the options.";
}

std::vector<std::vector<size_t>> orders_of(const Question& question, OptionOrder mode) {
  std::vector<size_t> given(question.options.size());
  std::iota(given.begin(), given.end(), size_t{0});
  std::vector<std::vector<size_t>> orders = {given};
  if (mode == OptionOrder::kTwo) {
    orders.emplace_back(given.rbegin(), given.rend());
  } else if (mode == OptionOrder::kAll) {
    for (size_t k = 1; k < given.size(); ++k) {
      std::rotate(given.begin(), given.begin() + 1, given.end());
      orders.push_back(given);
    }
  }
  return orders;
}

Result<std::vector<Label>> choose_labels(const Text& text, size_t n) {
  std::vector<Label> labels;
  for (size_t i = 0; i < std::min(n, kLetters); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    const TokenId id = text.find_by_bytes(letter);
    if (id < 0) {
      return unsupported(
          fmt::format("the model's vocabulary has no token for the letter \"{}\" "
                      "alone, which a question with {} options needs",
                      letter, n));
    }
    labels.push_back({letter, id});
  }
  if (n <= kLetters) return labels;
  for (const std::string& candidate : further_labels()) {
    if (labels.size() == n) break;
    const TokenId id = text.find_by_bytes(candidate);
    if (id >= 0) labels.push_back({candidate, id});
  }
  if (labels.size() < n) {
    return unsupported(
        fmt::format("the model's vocabulary has {} labels of one token (letters, two letters, "
                    "numbers), a question has {} options",
                    labels.size(), n));
  }
  return labels;
}

Result<Prompts> make_prompts(Engine* engine, const Text& text, const DecisionRequest& request) {
  const std::string state = marks_in_front(request) + state_text(request.state);
  size_t most = 0;
  for (const Question& question : request.questions) {
    if (!is_settled(question)) most = std::max(most, question.options.size());
  }
  Prompts prompts;
  if (most == 0) return prompts;
  OKIBI_ASSIGN_OR_RETURN(const std::vector<Label> labels, choose_labels(text, most));
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const Question& question = request.questions[i];
    if (is_settled(question)) continue;
    for (std::vector<size_t>& order : orders_of(question, request.order)) {
      auto prompt =
          encode_message(engine, text, request, state + question_text(question, order, labels));
      if (!prompt.ok()) {
        return prompt.status().with_context("question " + quote_for_message(question.id));
      }
      AskedPrompt asked{i, std::move(order), std::move(prompt).value(), {}};
      for (size_t k = 0; k < asked.order.size(); ++k) asked.labels.push_back(labels[k].id);
      prompts.asked.push_back(std::move(asked));
    }
  }
  // What every question on this state begins with, whatever it asks: so the state that is kept for
  // the next request does not depend on this one's questions.
  OKIBI_ASSIGN_OR_RETURN(const Prompt other, encode_message(engine, text, request, state + "."));
  prompts.n_shared = other.tokens.size();
  for (const AskedPrompt& asked : prompts.asked) {
    CHECK(!asked.prompt.tokens.empty(), "empty prompt");
    prompts.n_shared =
        std::min({prompts.n_shared, n_common(asked.prompt, other), asked.prompt.tokens.size() - 1});
  }
  return prompts;
}

}  // namespace okibi::decision

namespace okibi {

std::string make_picture_marker() {
  std::random_device random;
  std::string marker = "<okibi-picture-";
  for (int i = 0; i < 4; ++i) marker += fmt::format("{:08x}", static_cast<uint32_t>(random()));
  return marker + "-";
}

std::string picture_mark(std::string_view marker, size_t index) {
  return fmt::format("{}{};", marker, index);
}

}  // namespace okibi
