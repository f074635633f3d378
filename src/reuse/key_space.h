// What the key of everything kept begins with.
#pragma once

#include <string_view>

#include "base/hash.h"

namespace okibi::reuse {

// Scope (who may know of it) and numeric identity (what computed it): entries of other scopes or
// engines cannot be met.
Sha256 key_space(std::string_view scope, const Sha256& identity);

}  // namespace okibi::reuse
