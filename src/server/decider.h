// What answers requests: the door between HTTP and the engine. The server calls it from its workers
// only, several at a time; tests put a fake behind it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "okibi/decision.h"
#include "okibi/status.h"
#include "server/wire/request.h"

namespace okibi::server {

// What accompanies a request without being in its body.
struct JobOptions {
  std::string scope;  // callers of different scopes share nothing that is kept
  OptionOrder order = OptionOrder::kOff;
  bool calibrate = true;
  bool want_detail = false;
  const std::atomic<bool>* cancel = nullptr;  // set when the client has gone
};

struct LevelUse {
  uint32_t hits = 0, misses = 0;
};

struct Answers {
  DecisionResult result;  // in question order
  uint32_t n_cached_tokens = 0, n_cache_write_tokens = 0;
  LevelUse files, views, prefixes, answers;  // what was reused, per level
  double decode_ms = 0, encode_ms = 0;       // decoding with resizing
  bool is_calibrated = false;
  OptionOrder order = OptionOrder::kOff;
};

struct ModelCard {
  std::string name;          // as answers have it
  std::string description;   // one line
  std::string release_date;  // of the file, RFC 3339
  int64_t created = 0;       // the same in seconds
  uint32_t n_ctx = 0;
  uint32_t max_options = 0, max_levels = 0;
  bool has_vision = false;
};

class Decider {
 public:
  virtual ~Decider() = default;
  virtual const ModelCard& card() const = 0;
  // kInvalidArgument, kBadData and kUnsupported become 422, kNotFound 404, kResourceExhausted 413
  // (it cannot fit) and kUnavailable 503. A cancelled job's answer reaches nobody.
  virtual Result<Answers> decide(const WireRequest& request, const JobOptions& options) = 0;
};

}  // namespace okibi::server
