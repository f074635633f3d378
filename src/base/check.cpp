#include "base/check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace okibi {

void check_failed(const char* file, int line, const char* condition, const char* format, ...) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s", file, line, condition);
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace okibi
