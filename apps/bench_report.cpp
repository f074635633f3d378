#include "apps/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "build_info.h"
#include "platform/cpu_features.h"
#include "platform/file_map.h"

namespace okibi::apps {
namespace {

const char* test_name(BenchTest test) {
  return test == BenchTest::kPrefill ? "prefill" : "decode";
}

size_t set_index(const BenchPlan& plan, const BenchRow& row) {
  for (size_t i = 0; i < plan.sets.size(); ++i) {
    if (plan.sets[i].label == row.set) return i;
  }
  return 0;
}

// One panel of the plot: tokens/s of one test against depth.
std::string svg_panel(const BenchPlan& plan, const BenchResult& result, BenchTest test,
                      double top) {
  constexpr double kLeft = 70, kWidth = 540, kHeight = 170;
  static constexpr const char* kColors[] = {"#c2410c", "#1d4ed8"};
  double most = 0, deepest = 1;
  for (const BenchRow& row : result.rows) {
    if (row.test != test) continue;
    most = std::max(most, row.n_tokens / row.min_s);
    deepest = std::max(deepest, static_cast<double>(row.depth));
  }
  if (most == 0) return "";
  const auto x = [&](double depth) { return kLeft + kWidth * depth / deepest; };
  const auto y = [&](double rate) { return top + kHeight * (1 - rate / (1.1 * most)); };
  std::string out = fmt::format(
      "<text x='{}' y='{}' font-weight='bold'>{} tokens/s</text>"
      "<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#999'/>",
      kLeft, top - 8, test_name(test), kLeft, top, kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double rate = most * i / 4;
    out += fmt::format("<text x='{}' y='{}' text-anchor='end'>{:.0f}</text>", kLeft - 6,
                       y(rate) + 4, rate);
  }
  for (uint32_t depth : plan.depths) {
    out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>", x(depth),
                       top + kHeight + 16, depth);
  }
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    std::string points;
    for (const BenchRow& row : result.rows) {
      if (row.test != test || row.set != plan.sets[s].label) continue;
      points += fmt::format("{:.1f},{:.1f} ", x(row.depth), y(row.tokens_per_s));
      out += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/>"
          "<circle cx='{0:.1f}' cy='{4:.1f}' r='3' fill='{3}'/>",
          x(row.depth), y(row.n_tokens / row.max_s), y(row.n_tokens / row.min_s), kColors[s % 2],
          y(row.tokens_per_s));
    }
    out += fmt::format("<polyline points='{}' fill='none' stroke='{}'/>", points, kColors[s % 2]);
    out += fmt::format("<text x='{}' y='{}' fill='{}'>set {}</text>", kLeft + kWidth - 50,
                       top + 18 + 16 * static_cast<double>(s), kColors[s % 2], plan.sets[s].label);
  }
  return out;
}

}  // namespace

std::string machine_name() {
  const std::string& brand = host_cpu().brand;
  return brand.empty() ? "unknown" : brand;
}

Result<std::string> file_sha256(const std::string& path) {
  OKIBI_ASSIGN_OR_RETURN(const FileMap map, FileMap::open(path));
  return to_hex(sha256(map.bytes()));
}

std::string bench_table(const BenchPlan& plan, const BenchResult& result) {
  std::string out;
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    const ops::Roofs& r = result.roofs[s];
    out += fmt::format(
        "set {}: {}, {} threads; int8 peak {:.3f} TOPS ({}), float {:.3f} TFLOPS, reads {:.1f} "
        "GB/s\n",
        plan.sets[s].label, result.rows[s].identity, result.rows[s].n_threads,
        r.int8_ops_per_s * 1e-12, r.int8_name, r.float_ops_per_s * 1e-12,
        r.read_bytes_per_s * 1e-9);
  }
  out += fmt::format("{:<8} {:>8} {:>7} {:>4} {:>10} {:>17} {:>8} {:>10} {:>8}\n", "test", "depth",
                     "tokens", "set", "tok/s", "min..max", "A-A", "bandwidth", "int8");
  for (const BenchRow& row : result.rows) {
    out += fmt::format(
        "{:<8} {:>8} {:>7} {:>4} {:>10.2f} {:>8.2f}..{:<7.2f} {:>6.1f}%{} {:>9} {:>7.1f}%\n",
        test_name(row.test), row.depth, row.n_tokens, row.set, row.tokens_per_s,
        row.n_tokens / row.max_s, row.n_tokens / row.min_s, 100 * row.twin_difference,
        row.is_flagged ? "!" : " ",
        row.share_of_bandwidth > 0 ? fmt::format("{:.1f}%", 100 * row.share_of_bandwidth) : "-",
        100 * row.share_of_peak);
  }
  if (std::any_of(result.rows.begin(), result.rows.end(),
                  [](const BenchRow& r) { return r.is_flagged; })) {
    out +=
        "! the first and last block of this row differ by more than 5 %: the machine was not "
        "steady, measure again\n";
  }
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    out += fmt::format("set {}: file {:.1f} MiB, planned K/V and state {:.1f} MiB\n",
                       plan.sets[s].label,
                       static_cast<double>(result.models[s].file_bytes) / (1 << 20),
                       static_cast<double>(result.planned_cache_bytes[s]) / (1 << 20));
  }
  out += fmt::format("peak resident size of the process: {:.1f} MiB\n",
                     static_cast<double>(result.peak_resident_bytes) / (1 << 20));
  return out;
}

std::string bench_csv(const BenchContext& context, const BenchPlan& plan,
                      const BenchResult& result) {
  std::string out =
      "commit,dirty,machine,compiler,model,model_sha256,identity,threads,set,test,depth,tokens,"
      "samples,median_s,min_s,max_s,tok_per_s,twin_difference,flagged,bytes_per_token,"
      "share_of_bandwidth,ops_per_token,share_of_int8_peak,read_GB_per_s,int8_TOPS,logits_hash\n";
  for (const BenchRow& row : result.rows) {
    const ops::Roofs& roofs = result.roofs[set_index(plan, row)];
    out += fmt::format(
        "{},{},\"{}\",\"{}\",{},{},\"{}\",{},{},{},{},{},{},{:.6f},{:.6f},{:.6f},{:.3f},{:.4f},{},"
        "{:.0f},{:.4f},{:.0f},{:.4f},{:.2f},{:.3f},{:016x}\n",
        kBuildCommit, kBuildDirty, context.machine, kBuildCompiler, context.model_file,
        context.model_sha256, row.identity, row.n_threads, row.set, test_name(row.test), row.depth,
        row.n_tokens, row.seconds.size(), row.median_s, row.min_s, row.max_s, row.tokens_per_s,
        row.twin_difference, row.is_flagged, row.bytes_per_token, row.share_of_bandwidth,
        row.ops_per_token, row.share_of_peak, roofs.read_bytes_per_s * 1e-9,
        roofs.int8_ops_per_s * 1e-12, row.logits_hash);
  }
  return out;
}

std::string bench_json(const BenchContext& context, const BenchPlan& plan,
                       const BenchResult& result) {
  nlohmann::ordered_json root;
  root["commit"] = kBuildCommit;
  root["dirty"] = kBuildDirty;
  root["compiler"] = kBuildCompiler;
  root["machine"] = context.machine;
  root["model"] = context.model_file;
  root["model_sha256"] = context.model_sha256;
  root["peak_resident_bytes"] = result.peak_resident_bytes;
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    root["sets"].push_back({{"label", plan.sets[s].label},
                            {"int8_instruction", result.roofs[s].int8_name},
                            {"int8_ops_per_s", result.roofs[s].int8_ops_per_s},
                            {"float_ops_per_s", result.roofs[s].float_ops_per_s},
                            {"read_bytes_per_s", result.roofs[s].read_bytes_per_s},
                            {"file_bytes", result.models[s].file_bytes},
                            {"planned_cache_bytes", result.planned_cache_bytes[s]}});
  }
  for (const BenchRow& row : result.rows) {
    root["rows"].push_back({{"test", test_name(row.test)},
                            {"depth", row.depth},
                            {"tokens", row.n_tokens},
                            {"set", row.set},
                            {"identity", row.identity},
                            {"threads", row.n_threads},
                            {"seconds", row.seconds},
                            {"median_s", row.median_s},
                            {"tokens_per_s", row.tokens_per_s},
                            {"twin_difference", row.twin_difference},
                            {"flagged", row.is_flagged},
                            {"bytes_per_token", row.bytes_per_token},
                            {"share_of_bandwidth", row.share_of_bandwidth},
                            {"ops_per_token", row.ops_per_token},
                            {"share_of_int8_peak", row.share_of_peak},
                            {"logits_hash", fmt::format("{:016x}", row.logits_hash)}});
  }
  return root.dump(2) + "\n";
}

std::string bench_svg(const BenchContext& context, const BenchPlan& plan,
                      const BenchResult& result) {
  std::string out =
      "<svg xmlns='http://www.w3.org/2000/svg' width='640' height='520' font-family='sans-serif' "
      "font-size='12'><rect width='640' height='520' fill='white'/>";
  out += fmt::format("<text x='70' y='22'>{} on {}</text>", context.model_file, context.machine);
  out += svg_panel(plan, result, BenchTest::kPrefill, 60);
  out += svg_panel(plan, result, BenchTest::kDecode, 300);
  out += "<text x='340' y='506' text-anchor='middle'>depth (tokens of context before)</text></svg>";
  return out + "\n";
}

}  // namespace okibi::apps
