// A body to a WireRequest: System One (docs/server.md) in all its forms, and OpenAI's Decisions.
// Every rule of both formats that does not need the model is checked here; past this the texts are
// data.
#pragma once

#include <string_view>

#include "decide/json_value.h"
#include "server/wire/api_error.h"
#include "server/wire/body_coding.h"
#include "server/wire/images.h"
#include "server/wire/request.h"

namespace okibi::server {

struct WireBody {
  Api path = Api::kSystemOne;  // /v1/systemone or /v1/decisions
  std::string_view content_type;
  std::string_view content_encoding;
  std::string_view bytes;
};

constexpr size_t kMaxQuestions = 1024;

// The error has status 0 when all is well. `request->api` says in which form to answer, also when
// the body was refused.
ApiError read_request(const WireBody& body, WireRequest* request);

// The two formats, on JSON that has been read. `parts` are those of a multipart body, without
// "request"; null for other bodies.
ApiError read_systemone(const decision::JsonValue& body, const std::vector<Part>* parts,
                        WireRequest* request);
ApiError read_decisions(const decision::JsonValue& body, WireRequest* request);

// What both read: a chat message's parts or the output of a tool, as one text with marks. `loc` is
// the place of `content` in the body; breakpoints are appended as offsets into the text.
struct PartsReader {
  Images& images;
  ApiError* error;
  std::vector<size_t>* prefix_ends = nullptr;  // null: parts here carry no breakpoints

  // Appends to `out`; false with *error set.
  bool read(const decision::JsonValue& content, const std::vector<std::string>& loc,
            std::string_view role, std::string* out) const;

 private:
  bool read_part(const decision::JsonValue& part, const std::vector<std::string>& loc,
                 std::string_view role, std::string* out) const;
  bool read_breakpoint(const decision::JsonValue& part, const std::vector<std::string>& loc,
                       const std::string& out) const;
};

// "Developer", "System", "User", "Assistant", "Tool"; empty for another role.
std::string_view role_title(std::string_view role);

}  // namespace okibi::server
