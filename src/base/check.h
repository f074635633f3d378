// CHECK stops the process on a bug of our own: a state that no input can legitimately cause.
// DCHECK does the same in the dev and sanitizer builds only, for hot code. What the world can get
// wrong is a Status instead (okibi/status.h).
#pragma once

namespace okibi {

// Prints file, line, the failed condition and the message, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* format, ...) __attribute__((format(printf, 4, 5)));

}  // namespace okibi

// CHECK(a == b, "a=%d b=%d", a, b); the message may be empty but must be given.
#define CHECK(condition, ...)                                                 \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::okibi::check_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__); \
  } while (0)

#ifdef OKIBI_DCHECK
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#else
#define DCHECK(condition, ...) \
  do {                         \
  } while (0)
#endif
