// Prompts that begin alike: encoding the beginning once gives the ids of the whole prompts, for
// every vocabulary at hand and any state; where a vocabulary might join across the border, the
// beginning is encoded with each.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "decide/prompt.h"
#include "engine/text_impl.h"
#include "okibi/decision.h"
#include "unit/vocabulary_from_json.h"

namespace okibi {
namespace {

using tokenizer::TokenType;
using tokenizer::VocabularyData;
namespace vt = tokenizer::testing;

std::vector<VocabularyData> byte_pair_vocabularies() {
  std::vector<VocabularyData> all;
  for (const auto& golden : vt::kGoldenVocabularies) all.push_back(vt::golden_vocabulary(golden));
  all.push_back(vt::vocabulary_from_json(
      vt::read_json(OKIBI_SOURCE_DIR "/models/okibi-eye/tokenizer.json"), "lfm2"));
  // The same merges, and one of two line feeds, under split rules of other families, with a BOS and
  // without. Where the state ends, gpt-2's rule cuts between these two, if a letter follows.
  for (const char* pre : {"gpt-2", "llama-bpe", "tekken", "deepseek-llm", "falcon", "bloom"}) {
    all.push_back(all.front());
    all.back().pre = pre;
    vt::add_merge(&all.back(), "\xC4\x8A", "\xC4\x8A");
    all.back().add_bos = pre[0] == 't' ? 0 : 1;
  }
  return all;
}

std::string random_state(std::mt19937* rng) {
  static const std::vector<std::string> kWords = {
      " ",      "\n",         "\n\n",      "\t",         " the",         "kiln",
      "Embers", ".",          "?!",        "'s",         "12",           "3456",
      "...",    "(",          "]",         "<|im_end|>", "<image>",      "\r\n",
      "-",      "_",          "\xC3\xA9",  "e\xCC\x81",  "\xE6\xAE\x8B", "\xF0\x9F\x98\x80",
      "Q",      "Question: ", "\nQuestion"};
  std::string text;
  for (size_t n = (*rng)() % 60; n > 0; --n) text += kWords[(*rng)() % kWords.size()];
  return text;
}

Branches whole(const Text& text, const std::vector<PromptPart>& head,
               const std::vector<std::vector<PromptPart>>& tails) {
  Branches all;
  for (const auto& tail : tails) {
    std::vector<PromptPart> parts = head;
    parts.insert(parts.end(), tail.begin(), tail.end());
    auto ids = text.encode_parts(parts);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    all.tokens.push_back(*std::move(ids));
  }
  return all;
}

TEST(TextBranches, AreTheIdsOfTheWholePrompts) {
  std::mt19937 rng(11);
  for (const VocabularyData& data : byte_pair_vocabularies()) {
    const auto text = engine::make_text(vt::create_or_fail(data), "");
    for (int i = 0; i < 150; ++i) {
      const std::vector<PromptPart> head = {{"<|im_start|>user\n", true},
                                            {"State:\n" + random_state(&rng) + "\n\n", false}};
      std::vector<std::vector<PromptPart>> tails;
      for (int k = 0; k < 3; ++k) {
        tails.push_back({{"Question: " + random_state(&rng), false},
                         {"<|im_end|>\n<|im_start|>assistant\n", true}});
      }
      const auto found = text->encode_branches(head, tails);
      ASSERT_TRUE(found.ok()) << found.status().message();
      ASSERT_EQ(found->tokens, whole(*text, head, tails).tokens) << data.pre << ", state " << i;
      ASSERT_GT(found->n_head, 3u);
      for (const auto& ids : found->tokens) {
        ASSERT_GT(ids.size(), found->n_head);
        ASSERT_TRUE(std::equal(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(found->n_head),
                               found->tokens[0].begin()));
      }
    }
  }
}

TEST(TextBranches, HeadsThatMightBeJoinedAreEncodedWithEach) {
  const std::vector<PromptPart> head = {{"State\n", false}};
  const std::vector<std::vector<PromptPart>> tails = {{{"Question a", false}},
                                                      {{"Question b", false}}};
  VocabularyData data = vt::byte_vocabulary("qwen2");
  vt::add_merge(&data, "a", "b");
  const auto plain = engine::make_text(vt::create_or_fail(data), "");
  ASSERT_TRUE(plain->encode_branches(head, tails).ok());
  EXPECT_EQ(plain->encode_branches(head, tails)->n_head, 6u);
  // A letter follows no space, and tails that begin differently are not looked into.
  EXPECT_EQ(plain->encode_branches({{{"State ", false}}}, tails)->n_head, 0u);
  EXPECT_EQ(plain->encode_branches(head, {{{{"Q", false}}, {{"R", false}}}})->n_head, 0u);
  EXPECT_EQ(plain->encode_branches({}, tails)->n_head, 0u);
  // A token that spans the border is found.
  const auto joined = vt::add_token(&data, "\nQuest", TokenType::kUserDefined);
  const auto text = engine::make_text(vt::create_or_fail(data), "");
  const auto found = text->encode_branches(head, tails);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->n_head, 0u);
  EXPECT_EQ(found->tokens, whole(*text, head, tails).tokens);
  EXPECT_EQ(found->tokens[0][5], joined);
}

// Questions about one state, through the door that decisions use: the ids are those that each
// question gets alone, and what is shared is all of the state.
TEST(TextBranches, QuestionsOfADecisionGetTheIdsTheyHaveAlone) {
  const auto text =
      engine::make_text(vt::create_or_fail(vt::golden_vocabulary(vt::kGoldenVocabularies[0])), "");
  ASSERT_TRUE(text->chat_layout().ok());
  std::mt19937 rng(5);
  for (int i = 0; i < 50; ++i) {
    DecisionRequest request{.state = random_state(&rng)};
    for (const char* id : {"a", "b", "c"}) {
      Question question{.id = id, .instructions = random_state(&rng)};
      question.options = {{"true", "", ""}, {"false", "", ""}};
      request.questions.push_back(question);
    }
    const auto together = decision::make_prompts(nullptr, *text, request);
    ASSERT_TRUE(together.ok()) << together.status().message();
    for (size_t q = 0; q < 3; ++q) {
      DecisionRequest one{.state = request.state, .questions = {request.questions[q]}};
      const auto alone = decision::make_prompts(nullptr, *text, one);
      ASSERT_TRUE(alone.ok());
      EXPECT_EQ(alone->asked[0].prompt.tokens, together->asked[q].prompt.tokens);
      EXPECT_EQ(alone->n_shared, together->n_shared);
    }
    const auto shared = std::span(together->asked[0].prompt.tokens).first(together->n_shared);
    EXPECT_TRUE(text->decode(shared, false).ends_with(request.state + "\n\n"));
  }
}

}  // namespace
}  // namespace okibi
