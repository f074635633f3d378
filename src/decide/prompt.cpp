#include "decide/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "decide/json_value.h"
#include "decide/picture_marks.h"
#include "decide/question.h"
#include "engine/picture_rows.h"
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

void note_pictures(std::string_view text, std::vector<bool>* mentioned) {
  for (const TextPiece& piece : split_at_marks(text)) {
    if (piece.picture && *piece.picture < mentioned->size()) (*mentioned)[*piece.picture] = true;
  }
}

// A question's prompt before it is encoded, cut at the end of the state.
struct LaidOut {
  std::vector<PromptPart> head, tail;
  std::vector<Picture> pictures;  // in the order of their places
};

// Marks become the pictures' blocks.
void add_pieces(const DecisionRequest& request, const PromptPart& part,
                std::vector<PromptPart>* parts, std::vector<Picture>* pictures) {
  for (const TextPiece& piece : split_at_marks(part.text)) {
    if (piece.picture && *piece.picture < request.pictures.size()) {
      pictures->push_back(request.pictures[*piece.picture]);
      parts->push_back({pictures->back().prompt_text, /*trusted=*/true});
    } else {
      parts->push_back({std::string(piece.text), part.trusted});
    }
  }
}

// The user message of state and question. A layout that does not keep the state as it is leaves the
// head empty.
Result<LaidOut> lay_out(const Text& text, const DecisionRequest& request, const std::string& state,
                        const std::string& question) {
  const Message message{.role = "user", .content = state + question};
  OKIBI_ASSIGN_OR_RETURN(const std::vector<PromptPart> parts,
                         text.chat_parts(std::span(&message, 1), /*enable_thinking=*/false));
  const auto content = std::find_if(parts.begin(), parts.end(), [&](const PromptPart& part) {
    return !part.trusted && part.text.starts_with(state) && part.text.size() > state.size();
  });
  LaidOut out;
  if (content == parts.end()) {
    for (const PromptPart& part : parts) add_pieces(request, part, &out.tail, &out.pictures);
    return out;
  }
  for (auto it = parts.begin(); it != content; ++it) {
    add_pieces(request, *it, &out.head, &out.pictures);
  }
  add_pieces(request, {state, false}, &out.head, &out.pictures);
  add_pieces(request, {content->text.substr(state.size()), false}, &out.tail, &out.pictures);
  for (auto it = content + 1; it != parts.end(); ++it) {
    add_pieces(request, *it, &out.tail, &out.pictures);
  }
  return out;
}

Result<Prompt> place_rows(Engine* engine, std::vector<TokenId> tokens,
                          std::span<const Picture> pictures) {
  if (pictures.empty()) return Prompt{std::move(tokens), {}};
  CHECK(engine != nullptr, "%zu pictures without an engine", pictures.size());
  return engine->place_pictures(std::move(tokens), pictures);
}

// How far two prompts are the same tokens and pictures.
size_t n_common(const Prompt& a, const Prompt& b) {
  const size_t least = std::min(a.tokens.size(), b.tokens.size());
  size_t n = 0;
  while (n < least && a.tokens[n] == b.tokens[n]) ++n;
  n = std::min(n, engine::first_row_difference(a.rows, b.rows));
  // Never between the rows of a view.
  for (const Prompt::Rows& r : a.rows) {
    if (r.first < n && n < r.first + r.rows->n_rows) n = r.first;
  }
  return n;
}

// What every question on this state begins with, whatever it asks, found out from the tokens: so
// the state that is kept for the next request does not depend on this one's questions.
Result<size_t> find_shared(Engine* engine, const Text& text, const DecisionRequest& request,
                           const std::string& state, const Prompts& prompts) {
  OKIBI_ASSIGN_OR_RETURN(const LaidOut laid_out, lay_out(text, request, state, "."));
  OKIBI_ASSIGN_OR_RETURN(
      Branches branches,
      text.encode_branches(laid_out.head,
                           std::span<const std::vector<PromptPart>>(&laid_out.tail, 1)));
  OKIBI_ASSIGN_OR_RETURN(const Prompt other,
                         place_rows(engine, std::move(branches.tokens[0]), laid_out.pictures));
  size_t n = other.tokens.size();
  for (const AskedPrompt& asked : prompts.asked) {
    n = std::min({n, n_common(asked.prompt, other), asked.prompt.tokens.size() - 1});
  }
  return n;
}

// Fills in the tokens and rows of the prompts, and n_shared. `texts`: of the questions.
Status encode_all(Engine* engine, const Text& text, const DecisionRequest& request,
                  const std::string& state, std::span<const std::string> texts, Prompts* prompts) {
  const auto blame = [&](size_t i, const Status& status) {
    const Question& question = request.questions[prompts->asked[i].question];
    return status.with_context("question " + quote_for_message(question.id));
  };
  std::vector<PromptPart> head;
  std::vector<std::vector<PromptPart>> tails;
  std::vector<std::vector<Picture>> pictures;
  for (const std::string& question : texts) {
    OKIBI_ASSIGN_OR_RETURN(LaidOut one, lay_out(text, request, state, question));
    head = std::move(one.head);  // the same for all
    tails.push_back(std::move(one.tail));
    pictures.push_back(std::move(one.pictures));
  }
  Result<Branches> branches = text.encode_branches(head, tails);
  for (size_t i = 0; !branches.ok() && i < tails.size(); ++i) {
    const auto alone = text.encode_branches(head, std::span(&tails[i], 1));
    if (!alone.ok()) return blame(i, alone.status());
  }
  if (!branches.ok()) return branches.status();
  for (size_t i = 0; i < tails.size(); ++i) {
    Result<Prompt> prompt = place_rows(engine, std::move(branches->tokens[i]), pictures[i]);
    if (!prompt.ok()) return blame(i, prompt.status());
    CHECK(!prompt->tokens.empty(), "empty prompt");
    prompts->asked[i].prompt = std::move(prompt).value();
  }
  prompts->n_shared = branches->n_head;
  if (branches->n_head > 0) return ok_status();
  OKIBI_ASSIGN_OR_RETURN(prompts->n_shared, find_shared(engine, text, request, state, *prompts));
  return ok_status();
}

// The last place at or before byte `end` that is neither inside a character nor inside a mark.
size_t text_boundary(std::string_view text, size_t end) {
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  for (const TextPiece& piece : split_at_marks(text)) {
    const size_t begin = static_cast<size_t>(piece.text.data() - text.data());
    if (piece.picture && begin < end && end < begin + piece.text.size()) return begin;
  }
  return end;
}

// A message as it stands, with its pictures.
Result<Prompt> encode_message(Engine* engine, const Text& text, const DecisionRequest& request,
                              const std::string& content) {
  OKIBI_ASSIGN_OR_RETURN(LaidOut laid_out, lay_out(text, request, content, ""));
  std::vector<PromptPart> parts = std::move(laid_out.head);
  parts.insert(parts.end(), laid_out.tail.begin(), laid_out.tail.end());
  OKIBI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, text.encode_parts(parts));
  return place_rows(engine, std::move(tokens), laid_out.pictures);
}

// The request's prefix ends as token positions. A later text may go on in any way, and a token may
// reach over the end; the boundary taken is one that stands when the text ends there, and when one
// line feed or two follow, which is what follows a part of a message.
Status find_kept_ends(Engine* engine, const Text& text, const DecisionRequest& request,
                      std::string_view in_front, Prompts* prompts) {
  const std::string head = std::string(in_front) + "State:\n";
  for (const size_t byte : request.prefix_ends) {
    if (byte > request.state.size()) {
      return invalid_argument(
          fmt::format("a prefix ends at byte {}, the state has {}", byte, request.state.size()));
    }
    const std::string begin = head + request.state.substr(0, text_boundary(request.state, byte));
    size_t end = prompts->n_shared;
    for (const char* next : {"", "\n", "\n\n"}) {
      OKIBI_ASSIGN_OR_RETURN(const Prompt other,
                             encode_message(engine, text, request, begin + next));
      end = std::min(end, n_common(prompts->asked[0].prompt, other));
    }
    prompts->kept_ends.push_back(end);
  }
  if (!request.only_prefix_ends) prompts->kept_ends.push_back(prompts->n_shared);
  std::sort(prompts->kept_ends.begin(), prompts->kept_ends.end());
  const auto twice = std::unique(prompts->kept_ends.begin(), prompts->kept_ends.end());
  prompts->kept_ends.erase(twice, prompts->kept_ends.end());
  std::erase(prompts->kept_ends, size_t{0});
  return ok_status();
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
  size_t most = 0;
  for (const Question& question : request.questions) {
    if (!is_settled(question)) most = std::max(most, question.options.size());
  }
  Prompts prompts;
  if (most == 0) return prompts;
  OKIBI_ASSIGN_OR_RETURN(const std::vector<Label> labels, choose_labels(text, most));
  std::string state = state_text(request.state);
  std::vector<std::string> texts;  // beside prompts.asked
  std::vector<bool> mentioned(request.pictures.size());
  note_pictures(state, &mentioned);
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const Question& question = request.questions[i];
    if (is_settled(question)) continue;
    for (std::vector<size_t>& order : orders_of(question, request.order)) {
      texts.push_back(question_text(question, order, labels));
      note_pictures(texts.back(), &mentioned);
      AskedPrompt asked{.question = i, .order = std::move(order)};
      for (size_t k = 0; k < asked.order.size(); ++k) asked.labels.push_back(labels[k].id);
      prompts.asked.push_back(std::move(asked));
    }
  }
  std::string in_front;
  for (size_t i = 0; i < mentioned.size(); ++i) {
    if (!mentioned[i]) in_front += picture_mark(i);
  }
  OKIBI_RETURN_IF_ERROR(encode_all(engine, text, request, in_front + state, texts, &prompts));
  OKIBI_RETURN_IF_ERROR(find_kept_ends(engine, text, request, in_front, &prompts));
  return prompts;
}

}  // namespace okibi::decision
