// Where the time of a run goes. An ExecTrace collects (zone, layer, seconds) while switched on and
// costs one branch while off. One writer: the engine thread. Zones are a closed list so that tables
// and Chrome traces from different builds line up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace okibi {

enum class Zone : uint8_t {
  kAttend,
  kDelta,
  kEmbed,
  kExperts,
  kGelu,
  kIndex,
  kKvAppend,
  kLinear,
  kNgram,
  kNorm,
  kOther,
  kOutput,
  kRope,
  kShortConv,
  kSiluMul,
  kStreams,
  kCount,
};

std::string_view zone_name(Zone zone);

struct TraceEvent {
  Zone zone;
  int16_t layer;       // -1 outside layers
  const char* detail;  // static string: kernel name, layer kind; may be empty
  double start_s;      // on the clock of base/clock.h
  double duration_s;
};

class ExecTrace {
 public:
  bool enabled() const { return enabled_; }
  void enable(bool on) { enabled_ = on; }
  void clear() { events_.clear(); }
  void add(const TraceEvent& event) { events_.push_back(event); }
  const std::vector<TraceEvent>& events() const { return events_; }

  // Total seconds and calls per zone and detail, largest first, as an aligned table.
  std::string table() const;
  // The Chrome "trace event" JSON that chrome://tracing and Perfetto open.
  std::string chrome_json() const;

 private:
  bool enabled_ = false;
  std::vector<TraceEvent> events_;
};

}  // namespace okibi
