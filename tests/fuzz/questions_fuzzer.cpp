// Fuzzes the reader of typed questions: any bytes give questions or an error in words, and
// questions that were read hold what the format promises.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "okibi/decision.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto questions = okibi::parse_questions({reinterpret_cast<const char*>(data), size});
  if (!questions.ok()) {
    if (questions.status().message().empty()) std::abort();
    return 0;
  }
  if (questions->empty()) std::abort();
  for (const okibi::Question& question : *questions) {
    if (question.options.empty()) std::abort();
    if (question.type == okibi::QuestionType::kNoul && question.options.size() != 2) std::abort();
  }
  return 0;
}
