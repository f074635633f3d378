// The split patterns as regular expressions, in PCRE2's spelling: the specification that the
// scanners are tested against.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/pretokenize.h"

namespace okibi::tokenizer::testing {

struct PatternSpec {
  Pattern pattern;
  const char* name;
  std::vector<std::string> stages;
};

// Letters with case, of the deepseek-llm pattern.
inline constexpr const char* kCasedSet =
    R"([A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})"
    R"(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}])";

inline std::vector<PatternSpec> pattern_specs() {
  const std::string gpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  const std::string contractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
  const std::string spaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string words = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
  const std::string symbols = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)";
  const std::string qwen2_rest = words + R"(|\p{N})" + symbols + spaces;
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string lead = R"([^\r\n\p{L}\p{N}]?)";
  const std::string slashes = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)";
  const std::string gpt4o = lead + upper + "*" + lower + "+" + contractions + "?|" + lead + upper +
                            "+" + lower + "*" + contractions + R"(?|\p{N}{1,3})" + slashes + spaces;
  const std::string bloom =
      R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";
  const std::string cjk = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";
  const std::string cased = kCasedSet;
  const std::string falcon_digits = "[0-9][0-9][0-9]";
  return {
      {Pattern::kGpt2, "GPT2", {gpt2}},
      {Pattern::kLlama3,
       "LLAMA3",
       {contractions + "|" + words + R"(|\p{N}{1,3})" + symbols + spaces}},
      {Pattern::kQwen2, "QWEN2", {contractions + "|" + qwen2_rest}},
      {Pattern::kQwen2NoContractions, "QWEN2 without contractions", {qwen2_rest}},
      {Pattern::kQwen35,
       "QWEN35",
       {contractions + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})" +
        R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" + spaces}},
      {Pattern::kTekken,
       "TEKKEN",
       {lead + upper + "*" + lower + "+|" + lead + upper + "+" + lower + R"(*|\p{N})" + slashes +
        spaces}},
      {Pattern::kGpt4o, "GPT4O", {gpt4o}},
      {Pattern::kDigitGpt2, "DIGIT", {R"(\p{N})", gpt2}},
      {Pattern::kFalcon, "FALCON", {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2, falcon_digits}},
      {Pattern::kDefault, "DEFAULT", {R"([\p{P}\$\+<=>\^~\|]+)", gpt2, R"(\p{N}+)", falcon_digits}},
      {Pattern::kDsCoder,
       "DSCODER",
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk, R"(\p{N})"}},
      {Pattern::kDsLlm,
       "DSLLM",
       {R"([\r\n])", R"(\s?)" + cased + "+",
        R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
        R"(\s+$)", cjk, R"(\p{N}+)"}},
      {Pattern::kDsV3,
       "DSV3",
       {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
        R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" +
            spaces}},
      {Pattern::kBloom, "BLOOM", {bloom}},
      {Pattern::kViking, "VIKING", {bloom, R"(\p{N})"}},
      {Pattern::kBailing,
       "BAILING",
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
        R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {Pattern::kSeed,
       "SEED",
       {contractions + "|" + words + R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" + spaces}},
      {Pattern::kMiniCpm5,
       "MINICPM5",
       {R"(\p{N}{1,3})", contractions + "|" + words + R"(|\p{N}+)" + symbols + spaces}},
      {Pattern::kTinyAya, "TINYAYA", {R"(\d{1,3}(?=(?:\d{3})*\b))", gpt4o}},
      {Pattern::kExaMoe,
       "EXAMOE",
       {contractions + R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})" +
        R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {Pattern::kLines, "LINES", {R"([^\n]+|[\n]+)"}},
      {Pattern::kLaguna, "LAGUNA", {R"([^\n]+|[\n]+)", contractions + "|" + qwen2_rest}},
  };
}

}  // namespace okibi::tokenizer::testing
