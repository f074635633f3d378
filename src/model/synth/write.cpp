// See write.h.
#include "model/synth/write.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "gguf/writer.h"
#include "model/synth/random_rows.h"

namespace okibi::model {
namespace {

bool divides(DType type, uint64_t row) {
  return row % traits_of(type).block_size == 0;
}

// general.file_type: a label for people. Where a type has several mixes, the plainest of them.
struct FileTypeLabel {
  DType type;
  uint32_t label;
};
constexpr FileTypeLabel kLabels[] = {
    {DType::kF32, 0},      {DType::kF16, 1},     {DType::kQ4_0, 2},     {DType::kQ4_1, 3},
    {DType::kQ8_0, 7},     {DType::kQ5_0, 8},    {DType::kQ5_1, 9},     {DType::kQ2_K, 10},
    {DType::kQ3_K, 12},    {DType::kQ4_K, 14},   {DType::kQ5_K, 16},    {DType::kQ6_K, 18},
    {DType::kIQ2_XXS, 19}, {DType::kIQ2_XS, 20}, {DType::kIQ3_XXS, 23}, {DType::kIQ1_S, 24},
    {DType::kIQ4_NL, 25},  {DType::kIQ3_S, 26},  {DType::kIQ2_S, 28},   {DType::kIQ4_XS, 30},
    {DType::kIQ1_M, 31},   {DType::kBF16, 32},   {DType::kTQ1_0, 36},   {DType::kTQ2_0, 37},
    {DType::kMXFP4, 38},   {DType::kNVFP4, 39},  {DType::kQ1_0, 40},    {DType::kQ2_0, 41},
};

uint32_t file_type_label(DType type) {
  for (const FileTypeLabel& entry : kLabels) {
    if (entry.type == type) return entry.label;
  }
  return 1024;  // "guessed"
}

DType fallback_of(DType type) {
  switch (type) {
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kIQ4_XS:
      return DType::kIQ4_NL;
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return DType::kQ4_0;
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kF16;
  }
}

DType fitted(DType type, uint64_t row) {
  while (!divides(type, row)) type = fallback_of(type);
  return type;
}

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

void set_value(gguf::Writer& writer, const std::string& key, const SynthValue& value) {
  struct Visitor {
    gguf::Writer& writer;
    const std::string& key;
    void operator()(uint32_t v) const { writer.set_u32(key, v); }
    void operator()(float v) const { writer.set_f32(key, v); }
    void operator()(bool v) const { writer.set_bool(key, v); }
    void operator()(const std::string& v) const { writer.set_string(key, v); }
    void operator()(const std::vector<std::string>& v) const { writer.set_strings(key, v); }
    void operator()(const std::vector<int32_t>& v) const { writer.set_i32s(key, v); }
    void operator()(const std::vector<uint64_t>& v) const { writer.set_u64s(key, v); }
    void operator()(const std::vector<float>& v) const { writer.set_f32s(key, v); }
    void operator()(const std::vector<bool>& v) const {
      auto flat = std::make_unique<bool[]>(v.size());
      std::copy(v.begin(), v.end(), flat.get());
      writer.set_bools(key, {flat.get(), v.size()});
    }
  };
  std::visit(Visitor{writer, key}, value);
}

// Counts what was written and tells the caller, not too often.
class Progress {
 public:
  Progress(const SynthOptions& options, uint64_t total) : options_(options), total_(total) {}
  void add(uint64_t n_bytes) {
    done_ += n_bytes;
    if (options_.progress && (done_ - told_ >= (uint64_t{16} << 20) || done_ == total_)) {
      options_.progress(done_, total_);
      told_ = done_;
    }
  }

 private:
  const SynthOptions& options_;
  uint64_t total_, done_ = 0, told_ = 0;
};

Status write_tensor(gguf::Writer& writer, const SynthTensor& tensor, DType type, uint64_t seed,
                    std::vector<uint8_t>& buffer, Progress& progress) {
  OKIBI_ASSIGN_OR_RETURN(const RandomRows rows,
                         RandomRows::create(type, tensor.mean, tensor.std_dev, seed, tensor.name));
  const uint64_t one_row = row_bytes(type, tensor.ne[0]);
  const uint64_t n_rows = tensor.n_elements() / tensor.ne[0];
  const uint64_t rows_per_piece = std::max<uint64_t>(1, (uint64_t{1} << 22) / one_row);
  for (uint64_t begin = 0; begin < n_rows; begin += rows_per_piece) {
    const uint64_t end = std::min(n_rows, begin + rows_per_piece);
    buffer.resize((end - begin) * one_row);
    for (uint64_t row = begin; row < end; ++row) {
      rows.fill(row, tensor.ne[0], buffer.data() + (row - begin) * one_row);
    }
    OKIBI_RETURN_IF_ERROR(writer.write(buffer));
    progress.add(buffer.size());
  }
  return ok_status();
}

}  // namespace

DType synth_tensor_type(const SynthTensor& tensor, DType type) {
  switch (tensor.storage) {
    case SynthStorage::kF32:
      return DType::kF32;
    case SynthStorage::kPatch:
      return type == DType::kF16 || type == DType::kBF16 ? type : DType::kF32;
    case SynthStorage::kTable:
      return is_float(type) ? type : fitted(DType::kIQ4_NL, tensor.ne[0]);
    case SynthStorage::kEmbedding: {
      if (is_float(type)) return type;
      const DTypeTraits& t = traits_of(type);
      const bool is_small = t.block_bytes * 8 < 6 * t.block_size;
      return fitted(is_small ? DType::kQ6_K : type, tensor.ne[0]);
    }
    case SynthStorage::kMatrix:
      return fitted(type, tensor.ne[0]);
  }
  return DType::kF32;
}

DType synth_vision_type(DType type) {
  return is_float(type) ? type : DType::kQ8_0;
}

Result<SynthSummary> write_synth(const SynthPlan& plan, const std::string& path,
                                 const SynthOptions& options) {
  if (!can_synthesize(options.type)) {
    return RandomRows::create(options.type, 0, 1, 0, "").status();
  }
  gguf::Writer writer;
  for (const auto& [key, value] : plan.keys) set_value(writer, key, value);
  writer.set_u32("general.file_type", file_type_label(options.type));
  writer.set_u32("general.quantization_version", 2);

  SynthSummary summary;
  std::vector<DType> types;
  for (const SynthTensor& tensor : plan.tensors) {
    const DType type = synth_tensor_type(tensor, options.type);
    types.push_back(type);
    writer.add_tensor(tensor.name, type, std::span(tensor.ne.data(), tensor.n_dims));
    summary.data_bytes += row_bytes(type, tensor.ne[0]) * (tensor.n_elements() / tensor.ne[0]);
  }
  summary.n_tensors = plan.tensors.size();
  summary.n_parameters = plan.n_parameters();

  OKIBI_RETURN_IF_ERROR(writer.begin(path));
  Progress progress(options, summary.data_bytes);
  std::vector<uint8_t> buffer;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (!options.with_data) {
      OKIBI_RETURN_IF_ERROR(writer.skip_tensor());
      continue;
    }
    OKIBI_RETURN_IF_ERROR(
        write_tensor(writer, plan.tensors[i], types[i], options.seed, buffer, progress));
  }
  OKIBI_RETURN_IF_ERROR(writer.finish());
  return summary;
}

}  // namespace okibi::model
