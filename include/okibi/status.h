// Status and Result: how every function that can fail for a reason in the world says so.
//
// A Status is a code for programs and a sentence for people: it names what was found and what was
// expected. Result<T> is a T or a Status. Neither throws. Bugs of our own are not reported this
// way: they stop the process (base/check.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace okibi {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller asked for something that makes no sense
  kNotFound,           // a file, key or name is not there
  kBadData,            // a file or message is damaged or breaks its format
  kUnsupported,        // well-formed, but this build or host does not do it
  kResourceExhausted,  // memory, context or queue space does not suffice
  kCancelled,          // the caller withdrew, or a deadline passed
  kUnavailable,        // the system refused: I/O error, engine shut down
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with `context` put before its message ("model.gguf: ...").
  Status with_context(std::string_view context) const {
    if (ok()) return *this;
    return Status(code_, std::string(context) + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status ok_status() {
  return Status();
}
inline Status invalid_argument(std::string m) {
  return Status(StatusCode::kInvalidArgument, std::move(m));
}
inline Status not_found(std::string m) {
  return Status(StatusCode::kNotFound, std::move(m));
}
inline Status bad_data(std::string m) {
  return Status(StatusCode::kBadData, std::move(m));
}
inline Status unsupported(std::string m) {
  return Status(StatusCode::kUnsupported, std::move(m));
}
inline Status resource_exhausted(std::string m) {
  return Status(StatusCode::kResourceExhausted, std::move(m));
}
inline Status cancelled(std::string m) {
  return Status(StatusCode::kCancelled, std::move(m));
}
inline Status unavailable(std::string m) {
  return Status(StatusCode::kUnavailable, std::move(m));
}

// A value or the reason why there is none. Reading the value of a failed Result is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace okibi

// Leaves the enclosing function with the failure, if there is one.
#define OKIBI_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::okibi::Status okibi_status_ = (expr);        \
    if (!okibi_status_.ok()) return okibi_status_; \
  } while (0)

// OKIBI_ASSIGN_OR_RETURN(auto file, File::open(path));
#define OKIBI_CONCAT_INNER_(a, b) a##b
#define OKIBI_CONCAT_(a, b) OKIBI_CONCAT_INNER_(a, b)
#define OKIBI_ASSIGN_OR_RETURN(lhs, expr) \
  OKIBI_ASSIGN_OR_RETURN_(OKIBI_CONCAT_(okibi_result_, __LINE__), lhs, expr)
#define OKIBI_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                            \
  if (!result.ok()) return result.status();        \
  lhs = std::move(result).value()
