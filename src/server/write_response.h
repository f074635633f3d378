// Answers as the bodies that official clients read: System One's and OpenAI's Decisions.
#pragma once

#include <string>

#include "server/decider.h"
#include "server/wire/request.h"

namespace okibi::server {

// `want_detail` adds the one member `okibi`.
std::string response_body(const WireRequest& request, const Answers& answers, const ModelCard& card,
                          bool want_detail);
// GET /v1/models: TypeSafe's list and OpenAI's in one body.
std::string models_body(const ModelCard& card);

std::string_view order_name(OptionOrder order);  // "off", "two", "all"

}  // namespace okibi::server
