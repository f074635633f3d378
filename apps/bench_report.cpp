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

const char* fill_name(BenchFill fill) {
  return fill == BenchFill::kRandom ? "random" : "prefill";
}

double mega(double value) {
  return value * 1e-6;
}

std::string percent_or_dash(double share) {
  return share > 0 ? fmt::format("{:.1f}%", 100 * share) : "-";
}

std::string ratio_text(const BenchRow& row) {
  if (row.ratio == 0) return "-";
  return fmt::format("{:.3f} of {}, limit {:.3f}", row.ratio, row.shallower, row.ratio_limit);
}

bool has_rows(const BenchResult& result, BenchTest test) {
  return std::any_of(result.rows.begin(), result.rows.end(),
                     [test](const BenchRow& r) { return r.test == test; });
}

// Where the bytes of a decoded token lie, and what follows for the next shallower depth.
std::string bytes_table(const BenchResult& result) {
  if (!has_rows(result, BenchTest::kDecode)) return "";
  std::string out = fmt::format(
      "\ndecode, MB moved per token (state: read and written), and speed against the shallower "
      "depth; its\nlimit: the bytes that depth adds, at the bandwidth\n{:>8} {:>10} {:>8} {:>8} "
      "{:>8} {:>8} {:>8} {:>8} {:>9} {:>9}  {}\n",
      "depth", "set", "dense", "experts", "output", "state", "K/V", "index", "total", "bandwidth",
      "ratio");
  for (const BenchRow& row : result.rows) {
    if (row.test != BenchTest::kDecode) continue;
    const TokenBytes& b = row.bytes;
    out += fmt::format(
        "{:>8} {:>10} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.2f} {:>9}  {}\n",
        row.depth, row.set, mega(b.dense), mega(b.experts), mega(b.output), mega(b.state),
        mega(b.kv), mega(b.index), mega(b.total()), percent_or_dash(row.share_of_bandwidth),
        ratio_text(row));
  }
  return out;
}

// The same for the operations of prefill.
std::string ops_table(const BenchResult& result) {
  if (!has_rows(result, BenchTest::kPrefill)) return "";
  std::string out = fmt::format(
      "\nprefill, million operations per token (two per multiply-add; matrices int8, the others "
      "float; not\ncounted: recurrence, norms), the speed at both peaks, and speed against the "
      "shallower depth; its\nlimit: the operations that depth adds, at the float "
      "peak\n{:>8} {:>10} {:>10} {:>10} {:>10} {:>11} {:>7}  {}\n",
      "depth", "set", "matrices", "attention", "scores", "limit tok/s", "share", "ratio");
  for (const BenchRow& row : result.rows) {
    if (row.test != BenchTest::kPrefill) continue;
    const double limit = row.limit_tokens_per_s;
    out += fmt::format("{:>8} {:>10} {:>10.2f} {:>10.2f} {:>10.2f} {:>11.1f} {:>7}  {}\n",
                       row.depth, row.set, mega(row.ops.matrices), mega(row.ops.attention),
                       mega(row.ops.scores), limit,
                       percent_or_dash(limit > 0 ? row.tokens_per_s / limit : 0), ratio_text(row));
  }
  return out;
}

std::string comparison_table(const BenchResult& result) {
  if (result.comparisons.empty()) return "";
  std::string out = "\nagainst set A in the same A-B-B-A\n";
  for (const BenchComparison& c : result.comparisons) {
    out += fmt::format("{:<8} {:>8} {:>10} {:>7.3f}x  logits {}\n", test_name(c.test), c.depth,
                       c.set, c.speed,
                       c.is_same_hash   ? "equal"
                       : c.is_same_work ? "DIFFER, and must not"
                                        : "differ");
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
    const auto row = std::find_if(result.rows.begin(), result.rows.end(), [&](const BenchRow& row) {
      return row.set == plan.sets[s].label;
    });
    if (row == result.rows.end()) continue;
    out += fmt::format(
        "set {}: {}, {} threads; int8 peak {:.3f} TOPS ({}), float {:.3f} TFLOPS, reads {:.1f} "
        "GB/s\n",
        plan.sets[s].label, row->identity, row->n_threads, r.int8_ops_per_s * 1e-12, r.int8_name,
        r.float_ops_per_s * 1e-12, r.read_bytes_per_s * 1e-9);
  }
  out += fmt::format("context before: {}\n", plan.fill == BenchFill::kRandom
                                                 ? "random keys, values and state (--fill random)"
                                                 : "tokens run through the model");
  out += fmt::format("{:<8} {:>8} {:>7} {:>10} {:>10} {:>17} {:>8} {:>10} {:>8}\n", "test", "depth",
                     "tokens", "set", "tok/s", "min..max", "A-A", "bandwidth", "int8");
  for (const BenchRow& row : result.rows) {
    out += fmt::format(
        "{:<8} {:>8} {:>7} {:>10} {:>10.2f} {:>8.2f}..{:<7.2f} {:>6.1f}%{} {:>9} {:>7.1f}%\n",
        test_name(row.test), row.depth, row.n_tokens, row.set, row.tokens_per_s,
        row.n_tokens / row.max_s, row.n_tokens / row.min_s, 100 * row.twin_difference,
        row.is_flagged ? "!" : " ", percent_or_dash(row.share_of_bandwidth),
        100 * row.share_of_peak);
  }
  if (std::any_of(result.rows.begin(), result.rows.end(),
                  [](const BenchRow& r) { return r.is_flagged; })) {
    out +=
        "! the first and last block of this row differ by more than 5 %: the machine was not "
        "steady, measure again\n";
  }
  out += comparison_table(result) + bytes_table(result) + ops_table(result) + "\n";
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    if (result.planned_cache_bytes[s] == 0) continue;  // not measured at any depth
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
      "share_of_bandwidth,ops_per_token,share_of_int8_peak,read_GB_per_s,int8_TOPS,float_TFLOPS,"
      "logits_hash,"
      "fill,against,dense_bytes,expert_bytes,output_bytes,state_bytes,kv_bytes,index_bytes,"
      "attention_ops,score_ops,limit_tok_per_s,shallower,ratio,ratio_limit\n";
  for (const BenchRow& row : result.rows) {
    const ops::Roofs& roofs = result.roofs[set_index(plan, row)];
    out += fmt::format(
        "{},{},\"{}\",\"{}\",{},{},\"{}\",{},{},{},{},{},{},{:.6f},{:.6f},{:.6f},{:.3f},{:.4f},{},"
        "{:.0f},{:.4f},{:.0f},{:.4f},{:.2f},{:.3f},{:.3f},{:016x},",
        kBuildCommit, kBuildDirty, context.machine, kBuildCompiler, context.model_file,
        context.model_sha256, row.identity, row.n_threads, row.set, test_name(row.test), row.depth,
        row.n_tokens, row.seconds.size(), row.median_s, row.min_s, row.max_s, row.tokens_per_s,
        row.twin_difference, row.is_flagged, row.bytes.total(), row.share_of_bandwidth,
        row.ops.matrices, row.share_of_peak, roofs.read_bytes_per_s * 1e-9,
        roofs.int8_ops_per_s * 1e-12, roofs.float_ops_per_s * 1e-12, row.logits_hash);
    const TokenBytes& b = row.bytes;
    out += fmt::format(
        "{},{},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.3f},{},{:.4f},{:.4f}\n",
        fill_name(plan.fill), row.against, b.dense, b.experts, b.output, b.state, b.kv, b.index,
        row.ops.attention, row.ops.scores, row.limit_tokens_per_s, row.shallower, row.ratio,
        row.ratio_limit);
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
  root["fill"] = fill_name(plan.fill);
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
                            {"against", row.against},
                            {"identity", row.identity},
                            {"threads", row.n_threads},
                            {"seconds", row.seconds},
                            {"median_s", row.median_s},
                            {"tokens_per_s", row.tokens_per_s},
                            {"twin_difference", row.twin_difference},
                            {"flagged", row.is_flagged},
                            {"bytes_per_token",
                             {{"dense", row.bytes.dense},
                              {"experts", row.bytes.experts},
                              {"output", row.bytes.output},
                              {"state", row.bytes.state},
                              {"kv", row.bytes.kv},
                              {"index", row.bytes.index},
                              {"total", row.bytes.total()}}},
                            {"share_of_bandwidth", row.share_of_bandwidth},
                            {"ops_per_token",
                             {{"matrices", row.ops.matrices},
                              {"attention", row.ops.attention},
                              {"scores", row.ops.scores}}},
                            {"limit_tokens_per_s", row.limit_tokens_per_s},
                            {"shallower", row.shallower},
                            {"ratio", row.ratio},
                            {"ratio_limit", row.ratio_limit},
                            {"share_of_int8_peak", row.share_of_peak},
                            {"logits_hash", fmt::format("{:016x}", row.logits_hash)}});
  }
  for (const BenchComparison& c : result.comparisons) {
    root["comparisons"].push_back({{"test", test_name(c.test)},
                                   {"depth", c.depth},
                                   {"set", c.set},
                                   {"speed", c.speed},
                                   {"same_logits", c.is_same_hash},
                                   {"must_be_same", c.is_same_work}});
  }
  return root.dump(2) + "\n";
}

}  // namespace okibi::apps
