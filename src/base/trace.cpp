#include "base/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace okibi {

std::string_view zone_name(Zone zone) {
  switch (zone) {
    case Zone::kAttend:
      return "attend";
    case Zone::kDelta:
      return "delta";
    case Zone::kEmbed:
      return "embed";
    case Zone::kExperts:
      return "experts";
    case Zone::kGelu:
      return "gelu";
    case Zone::kIndex:
      return "index";
    case Zone::kKvAppend:
      return "kv_append";
    case Zone::kLinear:
      return "linear";
    case Zone::kNgram:
      return "ngram";
    case Zone::kNorm:
      return "norm";
    case Zone::kOther:
      return "other";
    case Zone::kOutput:
      return "output";
    case Zone::kRope:
      return "rope";
    case Zone::kShortConv:
      return "short_conv";
    case Zone::kSiluMul:
      return "silu_mul";
    case Zone::kStreams:
      return "streams";
    case Zone::kCount:
      break;
  }
  return "?";
}

std::string ExecTrace::table() const {
  struct Sum {
    double seconds = 0;
    int64_t calls = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  double total = 0;
  for (const TraceEvent& e : events_) {
    Sum& s = sums[{std::string(zone_name(e.zone)), e.detail}];
    s.seconds += e.duration_s;
    s.calls += 1;
    total += e.duration_s;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> rows(sums.begin(), sums.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string out = fmt::format("{:<12} {:<28} {:>10} {:>12} {:>7}\n", "op", "kernel / layer kind",
                                "calls", "ms", "share");
  for (const auto& [key, sum] : rows) {
    out += fmt::format("{:<12} {:<28} {:>10} {:>12.3f} {:>6.1f}%\n", key.first, key.second,
                       sum.calls, sum.seconds * 1e3, total > 0 ? 100 * sum.seconds / total : 0.0);
  }
  out += fmt::format("{:<12} {:<28} {:>10} {:>12.3f} {:>6.1f}%\n", "total", "", events_.size(),
                     total * 1e3, 100.0);
  return out;
}

std::string ExecTrace::chrome_json() const {
  std::string out = "{\"traceEvents\":[";
  const double origin = events_.empty() ? 0 : events_.front().start_s;
  bool first = true;
  for (const TraceEvent& e : events_) {
    out += fmt::format(
        "{}\n{{\"name\":\"{}\",\"cat\":\"op\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{\"layer\":{},\"detail\":\"{}\"}}}}",
        first ? "" : ",", zone_name(e.zone), (e.start_s - origin) * 1e6, e.duration_s * 1e6,
        e.layer, e.detail);
    first = false;
  }
  out += "\n]}\n";
  return out;
}

}  // namespace okibi
