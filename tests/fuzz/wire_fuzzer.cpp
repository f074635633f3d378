// Fuzzes the reader of request bodies. The first byte chooses path and content type; a multipart
// body's boundary is "b". Any bytes give a request whose parts fit together, or an error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "decide/picture_marks.h"
#include "server/wire/read_request.h"

namespace {

void check_marks(const okibi::server::WireRequest& request, std::string_view text) {
  for (const okibi::decision::TextPiece& piece : okibi::decision::split_at_marks(text)) {
    if (piece.picture && *piece.picture >= request.images.size()) std::abort();
    if (piece.text.empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace okibi::server;
  if (size == 0) return 0;
  const bool is_multipart = (data[0] & 1) != 0;
  WireRequest request;
  const ApiError error = read_request(
      {.path = (data[0] & 2) != 0 ? Api::kDecisions : Api::kSystemOne,
       .content_type = is_multipart ? "multipart/form-data; boundary=b" : "application/json",
       .bytes = {reinterpret_cast<const char*>(data + 1), size - 1}},
      &request);
  if (error.status != 0) {
    if (error.message.empty() || error_body(error, request.api).empty()) std::abort();
    return 0;
  }
  if (request.questions.empty()) std::abort();
  if (request.questions.size() != request.echoes.size()) std::abort();
  check_marks(request, request.state);
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const okibi::Question& question = request.questions[i];
    if (question.options.empty()) std::abort();
    const bool is_noul = question.type == okibi::QuestionType::kNoul;
    if (is_noul && question.options.size() != 2) std::abort();
    if (!is_noul && request.echoes[i].options.size() != question.options.size()) std::abort();
    check_marks(request, question.instructions);
    for (const okibi::Option& option : question.options) {
      check_marks(request, option.key);
      check_marks(request, option.description);
    }
  }
  for (size_t end : request.prefix_ends) {
    if (end > request.state.size()) std::abort();
  }
  return 0;
}
