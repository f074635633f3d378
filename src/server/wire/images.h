// The pictures of a body: read from base64, data URLs or digests, kept in one list, and named in
// texts. Where a text holds a picture's name, the name becomes the picture's mark.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decide/json_value.h"
#include "server/wire/api_error.h"
#include "server/wire/request.h"

namespace okibi::server {

constexpr size_t kMaxImages = 128;
constexpr size_t kMaxImageNameBytes = 256;
constexpr size_t kMaxTextBytes = size_t{8} << 20;  // of state and questions, as JSON text

class Images {
 public:
  explicit Images(std::vector<WireImage>* list) : list_(*list) {}

  // Each adds one and gives its number, or says what is wrong with it. `where` is for messages.
  std::optional<size_t> add_bytes(std::string where, std::string bytes, ApiError* error);
  std::optional<size_t> add_digest(std::string where, std::string_view digest, ApiError* error);
  // A data URL, "sha256:" and a digest, or bare base64 where `bare_allowed`.
  std::optional<size_t> add_source(std::string where, std::string_view source, bool bare_allowed,
                                   ApiError* error);
  // From now on `name` in a text means that image.
  void name(std::string name, size_t image);

  // A text, or a whole JSON value with its keys, with marks for names; the longest name wins.
  std::string marked(std::string_view text);
  decision::JsonValue marked(const decision::JsonValue& value);
  // The first name that no text held so far.
  std::optional<std::string> unmentioned() const;

 private:
  struct Name {
    std::string text;
    size_t image = 0;
    bool mentioned = false;
  };
  std::vector<WireImage>& list_;
  std::vector<Name> names_;  // in the order of the body
  std::vector<size_t> longest_first_;
};

// Whether a string is meant as a picture: a data URL or a digest.
bool looks_like_image_source(std::string_view text);

}  // namespace okibi::server
