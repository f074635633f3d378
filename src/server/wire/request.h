// What a client asked, independent of which API and which body form it used: texts, pictures and
// typed questions, and what of the request has to be echoed in the answer. Pictures stand inside
// texts as marks (picture_mark), or before the state when no text has their mark. Knows nothing of
// HTTP or of the engine.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/decision.h"

namespace okibi::server {

enum class Api { kSystemOne, kDecisions };

// A picture as it came: the bytes of its file, or the digest of one that was sent before.
struct WireImage {
  std::string where;   // asset name or path in the body, for messages
  std::string bytes;   // empty when `sha256` refers to an earlier picture
  std::string sha256;  // of the file's bytes, 64 hexadecimal digits, always set
  bool is_reference = false;
};

// What an answer repeats of its question. Beside WireRequest::questions.
struct QuestionEcho {
  std::string id;                    // System One: the question's key, Decisions: its name
  bool is_named = true;              // Decisions: the name was there
  std::vector<std::string> options;  // key, value, label or level of each option, as JSON
};

struct WireRequest {
  Api api = Api::kSystemOne;
  std::string model;  // as asked for; empty: whatever is loaded
  std::string state;  // with marks
  // Texts hold marks; ids are the client's. Options and echoes have the same order.
  std::vector<Question> questions;
  std::vector<QuestionEcho> echoes;
  std::vector<WireImage> images;
  // Bytes of `state` that end a prefix the client wants kept (cache breakpoints), ascending.
  std::vector<size_t> prefix_ends;
  bool explicit_prefixes = false;  // only those
  std::string cache_key;           // partitions what is kept
};

}  // namespace okibi::server
