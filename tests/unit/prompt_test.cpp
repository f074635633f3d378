// The words of a question's prompt, what prompts share, and the labels' tokens. The vocabulary here
// has one token per byte, one that merges across the border of state and question, and one that
// merges the end of a line.
#include "decide/prompt.h"

#include <gtest/gtest.h>

namespace okibi::decision {
namespace {

class ByteText : public Text {
 public:
  bool has_letters = true;
  bool has_layout = true;

  Result<std::vector<TokenId>> encode(std::string_view text, bool) const override {
    std::vector<TokenId> ids = {kBos};
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i, 10) == "\n\nQuestion") {
        ids.push_back(kMerged);
        i += 9;
      } else if (text.substr(i, 2) == "!\n") {
        ids.push_back(kBangLine);
        i += 1;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return ids;
  }
  Result<std::vector<TokenId>> encode_parts(std::span<const PromptPart> parts) const override {
    std::string all;
    for (const PromptPart& part : parts) all += part.text;
    return encode(all, true);
  }
  Result<std::vector<PromptPart>> chat_parts(std::span<const Message> messages,
                                             bool) const override {
    if (!has_layout) return unsupported("no chat layout");
    return std::vector<PromptPart>{{"<user>", true}, {messages[0].content, false}, {"<bot>", true}};
  }
  Result<std::string> chat_layout() const override { return std::string("test"); }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string out;
    for (TokenId id : ids) {
      if (id == kMerged) out += "\n\nQuestion";
      if (id == kBangLine) out += "!\n";
      if (id < 256) out += static_cast<char>(id);
    }
    return out;
  }
  std::unique_ptr<TextStream> stream(std::vector<std::string>) const override { return nullptr; }
  int32_t n_tokens() const override { return 259; }
  bool is_end_of_generation(TokenId) const override { return false; }
  bool is_sampleable(TokenId) const override { return true; }
  TokenId find_by_bytes(std::string_view bytes) const override {
    if (bytes == "C" && !has_letters) return -1;
    return bytes.size() == 1 ? static_cast<unsigned char>(bytes[0]) : -1;
  }

 private:
  static constexpr TokenId kBos = 256, kMerged = 257, kBangLine = 258;
};

DecisionRequest request_of(std::string state, std::string_view questions) {
  auto parsed = parse_questions(questions);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return {.state = std::move(state), .questions = *std::move(parsed)};
}

std::string only_question(std::string_view questions) {
  const Question question = request_of("", questions).questions[0];
  const auto labels = choose_labels(ByteText(), question.options.size());
  EXPECT_TRUE(labels.ok());
  return question_text(question, orders_of(question, OptionOrder::kOff)[0], *labels);
}

TEST(Prompt, ChoiceListsQuotedKeysAndDescriptions) {
  EXPECT_EQ(only_question(R"({"cause": {"type": "choice", "instructions": "What tripped it?",
      "criteria": {"over\"heat": "Too\nhot", "op": null, "other": {"a": [1, 2]}}}})"),
            "Question: What tripped it?\n\nOptions:\n"
            "A: \"over\\\"heat\" - \"Too\\nhot\"\n"
            "B: \"op\"\n"
            "C: \"other\" - {\"a\": [1, 2]}\n"
            "\nAnswer with exactly one letter: A, B or C.");
}

TEST(Prompt, ScoreListsLevelIndices) {
  EXPECT_EQ(only_question(R"({"s": {"type": "score", "instructions": ["rate", "it"],
      "criteria": ["low", ["a"]]}})"),
            "Question: [\"rate\", \"it\"]\n\nOptions:\n"
            "A: 0 - \"low\"\n"
            "B: 1 - [\"a\"]\n"
            "\nAnswer with exactly one letter: A or B.");
}

TEST(Prompt, NoulListsTrueAndFalse) {
  EXPECT_EQ(only_question(R"({"n": {"type": "noul", "criteria": {"false": "All fans run"},
      "instructions": "Has a fan stopped?"}})"),
            "Question: Has a fan stopped?\n\nOptions:\n"
            "A: true\n"
            "B: false - \"All fans run\"\n"
            "\nAnswer with exactly one letter: A or B.");
}

TEST(Prompt, IdIsShownOnlyWithoutInstructions) {
  EXPECT_EQ(only_question(R"({"my id": {"type": "noul", "instructions": "x"}})").find("my id"),
            std::string::npos);
  EXPECT_TRUE(only_question(R"({"my id": {"type": "noul", "criteria": {"true": "x"}}})")
                  .starts_with("Question: Decide whether \"my id\" is true or false.\n"));
  EXPECT_TRUE(only_question(R"({"my id": {"type": "choice", "criteria": {"a": null}}})")
                  .starts_with("Question: Choose the option that fits best for \"my id\".\n"));
  EXPECT_TRUE(only_question(R"({"my id": {"type": "score", "criteria": ["a"]}})")
                  .starts_with("Question: Choose the level that fits best for \"my id\".\n"));
}

TEST(Prompt, IsOneUserMessageWithTheStateFirst) {
  const ByteText text;
  const auto request = request_of("S", R"({"n": {"type": "noul", "instructions": "x"}})");
  const auto prompts = make_prompts(nullptr, text, request);
  ASSERT_TRUE(prompts.ok());
  EXPECT_EQ(text.decode(prompts->asked[0].prompt.tokens, true),
            "<user>State:\nS\n\nQuestion: x\n\nOptions:\nA: true\nB: false\n\n"
            "Answer with exactly one letter: A or B.<bot>");
}

TEST(Prompt, TokensOfAQuestionDoNotDependOnItsNeighbours) {
  const ByteText text;
  const std::string q1 = R"("a": {"type": "noul", "instructions": "Is it one?"})";
  const std::string q2 = R"("b": {"type": "noul", "instructions": "Is it two?"})";
  const auto both = make_prompts(nullptr, text, request_of("state", "{" + q1 + "," + q2 + "}"));
  const auto first = make_prompts(nullptr, text, request_of("state", "{" + q1 + "}"));
  const auto second = make_prompts(nullptr, text, request_of("state", "{" + q2 + "}"));
  ASSERT_TRUE(both.ok() && first.ok() && second.ok());
  EXPECT_EQ(both->asked[0].prompt.tokens, first->asked[0].prompt.tokens);
  EXPECT_EQ(both->asked[1].prompt.tokens, second->asked[0].prompt.tokens);
  // What is shared, and kept, is the state, up to the token that merges across the border; that the
  // questions begin alike does not count.
  EXPECT_EQ(both->n_shared, first->n_shared);
  EXPECT_EQ(text.decode(std::span(first->asked[0].prompt.tokens).first(first->n_shared), true),
            "<user>State:\nstate");
}

// What of a prompt lies before each end that is kept, the state's own end last.
std::vector<std::string> kept_texts(DecisionRequest request) {
  const ByteText text;
  const auto prompts = make_prompts(nullptr, text, request);
  EXPECT_TRUE(prompts.ok()) << prompts.status().message();
  std::vector<std::string> out;
  for (size_t end : prompts->kept_ends) {
    out.push_back(text.decode(std::span(prompts->asked[0].prompt.tokens).first(end), true));
  }
  return out;
}

TEST(Prompt, PrefixesEndWhereTheRequestSays) {
  const std::string question = R"({"a": {"type": "noul", "instructions": "x"}})";
  const auto kept = [&](std::string state, std::vector<size_t> ends, bool only = false) {
    DecisionRequest request = request_of(std::move(state), question);
    request.prefix_ends = std::move(ends);
    request.only_prefix_ends = only;
    return kept_texts(request);
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(kept("ab\ncd", {}), (Texts{"<user>State:\nab\ncd"}));
  EXPECT_EQ(kept("ab\ncd", {}, true), Texts{});
  EXPECT_EQ(kept("ab\ncd", {2, 4}),
            (Texts{"<user>State:\nab", "<user>State:\nab\nc", "<user>State:\nab\ncd"}));
  EXPECT_EQ(kept("ab\ncd", {2, 2, 5}, true), (Texts{"<user>State:\nab", "<user>State:\nab\ncd"}));
  EXPECT_EQ(kept("ab", {0}), (Texts{"<user>State:\n", "<user>State:\nab"}));
  // A token that may reach over the end is left out, also where it does not in this text.
  EXPECT_EQ(kept("ab!\ncd", {3}, true), Texts{"<user>State:\nab"});
  EXPECT_EQ(kept("ab!cd", {3}, true), Texts{"<user>State:\nab"});
}

TEST(Prompt, EqualQuestionsShareTheStateToo) {
  const ByteText text;
  const auto prompts =
      make_prompts(nullptr, text, request_of("s", R"({"a": {"type": "noul", "instructions": "x"},
                                              "b": {"type": "noul", "instructions": "x"}})"));
  ASSERT_TRUE(prompts.ok());
  EXPECT_EQ(prompts->asked[0].prompt.tokens, prompts->asked[1].prompt.tokens);
  EXPECT_LT(prompts->n_shared, prompts->asked[0].prompt.tokens.size());
}

TEST(Prompt, QuestionsWithOneOutcomeHaveNone) {
  const ByteText text;
  const auto prompts = make_prompts(
      nullptr, text, request_of("s", R"({"a": {"type": "choice", "criteria": {"x": null}},
                                              "b": {"type": "score", "criteria": ["x"]}})"));
  ASSERT_TRUE(prompts.ok());
  EXPECT_TRUE(prompts->asked.empty());
  EXPECT_EQ(prompts->n_shared, 0u);
}

TEST(Prompt, ModelsWithoutChatLayoutAreRefusedInTheirWords) {
  ByteText text;
  text.has_layout = false;
  const auto prompts = make_prompts(
      nullptr, text, request_of("s", R"({"door": {"type": "noul", "instructions": "x"}})"));
  ASSERT_FALSE(prompts.ok());
  EXPECT_NE(prompts.status().message().find("no chat layout"), std::string::npos);
}

TEST(Labels, AreTheLettersOwnTokens) {
  const ByteText text;
  const auto labels = choose_labels(text, 26);
  ASSERT_TRUE(labels.ok());
  EXPECT_EQ(labels->front().id, 'A');
  EXPECT_EQ(labels->back().id, 'Z');
  EXPECT_EQ(labels->back().text, "Z");
}

// This vocabulary has one token per byte: after the letters only the ten digits are labels.
TEST(Labels, BeyondTheLettersAreVerified) {
  const ByteText text;
  const auto labels = choose_labels(text, 36);
  ASSERT_TRUE(labels.ok());
  EXPECT_EQ((*labels)[26].text, "0");
  EXPECT_EQ((*labels)[35].text, "9");
  const auto more = choose_labels(text, 37);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.status().message().find("36 labels"), std::string::npos);
}

TEST(Orders, AreAsGivenReversedAndRotated) {
  Question question;
  question.options.resize(3);
  using Orders = std::vector<std::vector<size_t>>;
  EXPECT_EQ(orders_of(question, OptionOrder::kOff), (Orders{{0, 1, 2}}));
  EXPECT_EQ(orders_of(question, OptionOrder::kTwo), (Orders{{0, 1, 2}, {2, 1, 0}}));
  EXPECT_EQ(orders_of(question, OptionOrder::kAll), (Orders{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}}));
}

TEST(Orders, ShowTheSameOptionsUnderOtherLabels) {
  const ByteText text;
  DecisionRequest request = request_of("s", R"({"a": {"type": "choice", "instructions": "x",
                                 "criteria": {"one": null, "two": null}}})");
  request.order = OptionOrder::kTwo;
  const auto prompts = make_prompts(nullptr, text, request);
  ASSERT_TRUE(prompts.ok());
  ASSERT_EQ(prompts->asked.size(), 2u);
  EXPECT_NE(text.decode(prompts->asked[0].prompt.tokens, true).find("A: \"one\"\nB: \"two\""),
            std::string::npos);
  EXPECT_NE(text.decode(prompts->asked[1].prompt.tokens, true).find("A: \"two\"\nB: \"one\""),
            std::string::npos);
}

TEST(Labels, MissingLetterIsNamed) {
  ByteText text;
  text.has_letters = false;
  EXPECT_TRUE(choose_labels(text, 2).ok());
  const auto labels = choose_labels(text, 5);
  ASSERT_FALSE(labels.ok());
  EXPECT_NE(labels.status().message().find("\"C\""), std::string::npos);
}

}  // namespace
}  // namespace okibi::decision
