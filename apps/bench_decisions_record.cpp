// The record of `okibi bench decisions`: everything as JSON, a row per block and case as CSV.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "apps/bench_decisions_report.h"
#include "build_info.h"

namespace okibi::apps {
namespace {

using Json = nlohmann::ordered_json;

Json times_json(const DecisionsSample& sample) {
  Json out;
  for (size_t t = 0; t < kDecisionsTimes; ++t) out[kDecisionsTimeNames[t]] = sample.ms[t];
  return out;
}

Json levels_json(const DecisionsSample& sample) {
  Json out;
  for (size_t i = 0; i < kDecisionsLevels; ++i) {
    out[kDecisionsLevelNames[i]] = {{"hits", sample.hits[i]}, {"misses", sample.misses[i]}};
  }
  return out;
}

Json samples_json(std::span<const DecisionsSample> samples) {
  Json out = Json::array();
  for (const DecisionsSample& sample : samples) {
    out.push_back({{"ms", times_json(sample)}, {"levels", levels_json(sample)}});
  }
  return out;
}

Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

Json blocks_json(const DecisionsResult& result) {
  Json out = Json::array();
  for (const DecisionsBlock& block : result.blocks) {
    out.push_back({{"reuse", block.is_on ? "on" : "off"},
                   {"first_ms", block.samples[0].ms[kTotal]},
                   {"repeats_ms", spread_json(total_of(block.repeats()))},
                   {"requests", samples_json(block.samples)}});
  }
  return out;
}

Json cases_json(const DecisionsResult& result) {
  Json out;
  for (size_t c = 0; c < kDecisionsCases; ++c) {
    Json medians;
    for (size_t t = 0; t < kDecisionsTimes; ++t) {
      medians[kDecisionsTimeNames[t]] =
          median_ms(result, static_cast<DecisionsCase>(c), static_cast<DecisionsTime>(t));
    }
    out[kDecisionsCaseNames[c]] = {{"total_ms", spread_json(total_of(result.cases[c]))},
                                   {"median_ms", medians},
                                   {"requests", samples_json(result.cases[c])}};
  }
  return out;
}

Json speeds_json(const DecisionsResult& result) {
  Json out;
  for (const PrefillRate& rate : result.prefill) {
    out["prefill"].push_back({{"tokens", rate.n_tokens},
                              {"seconds", rate.seconds},
                              {"tokens_per_s", prefill_rate(rate)}});
  }
  const ops::Roofs& r = result.roofs;
  out["roofs"] = {{"int8_instruction", r.int8_name},
                  {"int8_ops_per_s", r.int8_ops_per_s},
                  {"bf16_ops_per_s", r.bf16_ops_per_s},
                  {"float_ops_per_s", r.float_ops_per_s},
                  {"read_bytes_per_s", r.read_bytes_per_s}};
  out["encoder"] = {{"matrix_ops", result.encoder_matrix_ops},
                    {"attention_ops", result.encoder_attention_ops}};
  if (const auto speed = encoder_speed(result)) {
    out["encoder"].update({{"peak", speed->peak_name},
                           {"median_ms", speed->median_ms},
                           {"best_ms", speed->best_ms},
                           {"ops_per_s", speed->ops_per_s},
                           {"share_of_peak", speed->share},
                           {"best_share_of_peak", speed->best_share},
                           {"share_with_attention_at_half", speed->mixed_share}});
  }
  return out;
}

}  // namespace

std::string decisions_json(const DecisionsFiles& files, const DecisionsPlan& plan,
                           const DecisionsResult& result) {
  Json root = {{"commit", kBuildCommit},
               {"dirty", kBuildDirty},
               {"compiler", kBuildCompiler},
               {"machine", machine_name()},
               {"identity", result.identity},
               {"threads", result.n_threads},
               {"load_average", result.load_average}};
  root["files"] = {{"image", {{"name", files.image}, {"sha256", files.image_sha256}}},
                   {"questions", {{"name", files.questions}, {"sha256", files.questions_sha256}}},
                   {"model", {{"name", files.model}, {"sha256", files.model_sha256}}},
                   {"projector", {{"name", files.projector}, {"sha256", files.projector_sha256}}},
                   {"binary", {{"sha256", files.binary_sha256}}}};
  const DecisionsSample& one = result.cases[kNewImage][0];
  root["picture"] = {{"width", result.picture.width},
                     {"height", result.picture.height},
                     {"views", result.picture.views.size()},
                     {"image_tokens", result.picture.n_image_tokens}};
  root["tokens"] = {{"shared", one.n_prefix_tokens}, {"questions", one.n_suffix_tokens}};
  for (size_t q = 0; q < plan.questions.size(); ++q) {
    const std::string& key = plan.questions[q].options[result.choices[q]].key;
    root["choices"][plan.questions[q].id] =
        key.empty() ? fmt::format("{}", result.choices[q]) : key;
  }
  const DecisionsAgreement& a = result.agreement;
  root["agreement"] = {{"answers", a.n_answers},
                       {"other_choices", a.n_other_choices},
                       {"other_bits", a.n_other_bits},
                       {"largest_probability_difference", a.largest_difference}};
  root["blocks"] = blocks_json(result);
  root["cases"] = cases_json(result);
  root.update(speeds_json(result));
  for (const DecisionsBar& bar : decisions_bars(result)) {
    root["bars"].push_back({{"what", bar.what},
                            {"value", bar.value},
                            {bar.is_most ? "at_most" : "at_least", bar.bar},
                            {"met", bar.is_met()}});
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string decisions_csv(const DecisionsFiles& files, const DecisionsResult& result) {
  std::string out =
      "commit,dirty,machine,model,model_sha256,identity,threads,load,what,samples,"
      "first_ms,median_ms,min_ms,max_ms";
  for (size_t t = kDecode; t < kDecisionsTimes; ++t) {
    out += fmt::format(",{}_ms", kDecisionsTimeNames[t]);
  }
  for (const char* level : kDecisionsLevelNames) out += fmt::format(",{0}_hits,{0}_misses", level);
  out += "\n";
  const auto row = [&](const std::string& what, double first_ms,
                       std::span<const DecisionsSample> samples) {
    const Spread s = total_of(samples);
    out += fmt::format("{},{},\"{}\",{},{},\"{}\",{},{:.2f},{},{},{:.4f},{:.4f},{:.4f},{:.4f}",
                       kBuildCommit, kBuildDirty, machine_name(), files.model, files.model_sha256,
                       result.identity, result.n_threads, result.load_average[1], what,
                       samples.size(), first_ms, s.median, s.min, s.max);
    for (size_t t = kDecode; t < kDecisionsTimes; ++t) {
      out += fmt::format(",{:.4f}", median_of(times_of(samples, static_cast<DecisionsTime>(t))));
    }
    for (size_t i = 0; i < kDecisionsLevels; ++i) {
      out += fmt::format(",{},{}", samples.back().hits[i], samples.back().misses[i]);
    }
    out += "\n";
  };
  for (size_t b = 0; b < result.blocks.size(); ++b) {
    const DecisionsBlock& block = result.blocks[b];
    row(fmt::format("block {} {}", b + 1, block.is_on ? "on" : "off"), block.samples[0].ms[kTotal],
        block.repeats());
  }
  for (size_t c = 0; c < kDecisionsCases; ++c) {
    row(kDecisionsCaseNames[c], result.cases[c][0].ms[kTotal], result.cases[c]);
  }
  return out;
}

}  // namespace okibi::apps
