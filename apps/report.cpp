// How a command says that it failed; see commands.h.
#include <cstdio>

#include "apps/commands.h"

namespace okibi::apps {

int report(const Status& status) {
  std::fprintf(stderr, "okibi: %s\n", status.message().c_str());
  return 1;
}

}  // namespace okibi::apps
