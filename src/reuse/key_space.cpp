#include "reuse/key_space.h"

#include <string>

namespace okibi::reuse {

// The scope's length stands before it, so that no scope and identity run into each other.
Sha256 key_space(std::string_view scope, const Sha256& identity) {
  const std::string length = std::to_string(scope.size()) + ":";
  Sha256Stream stream;
  stream.update(bytes_of(length));
  stream.update(bytes_of(scope));
  stream.update(identity);
  return stream.finish();
}

}  // namespace okibi::reuse
