// `okibi quantize`: writes a file with its matrices in another type, and says what that cost each
// of them. Streams: at any time a few MiB of one tensor are held, whatever the file's size. Blocks
// are independent, so a tensor is worked on as a flat run of blocks, in pieces over the threads.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "apps/commands.h"
#include "apps/out_file.h"
#include "apps/printable.h"
#include "apps/progress.h"
#include "apps/quantize_plan.h"
#include "apps/terminal.h"
#include "base/checked_math.h"
#include "base/clock.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "platform/thread_pool.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace okibi::apps {
namespace {

constexpr int64_t kPieceValues = 16384;  // a multiple of every block size, 64 KiB as floats
constexpr int64_t kBatchPieces = 64;     // quantised together, then written

struct QuantizeFlags {
  std::string in, out, type;
  int n_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool quiet = false;
};

// Error and power of a piece; added up in the order of pieces, so that the sums do not depend on
// the number of threads.
struct PieceResult {
  Status status;
  double error2 = 0, power2 = 0;
};

struct TensorResult {
  Status status;
  bool does_not_fit = false;  // the status is about this tensor's values in this type
  double relative_rms = 0;
};

class TensorQuantizer {
 public:
  explicit TensorQuantizer(int n_threads) : pool_(n_threads), scratch_(n_threads) {
    for (Scratch& s : scratch_) {
      s.values.resize(kPieceValues);
      s.back.resize(kPieceValues);
    }
  }

  // Calls `write` with the bytes of the tensor in its new type, in order.
  template <typename Write>
  TensorResult run(const gguf::File& file, const TensorPlan& plan, const Write& write);

 private:
  struct Scratch {
    std::vector<float> values, back;
  };

  PieceResult quantize_piece(const TensorPlan& plan, const uint8_t* from, int64_t n, uint8_t* to,
                             Scratch* scratch) const;

  ThreadPool pool_;
  std::vector<Scratch> scratch_;
  std::vector<uint8_t> out_;
  std::vector<PieceResult> results_;
};

PieceResult TensorQuantizer::quantize_piece(const TensorPlan& plan, const uint8_t* from, int64_t n,
                                            uint8_t* to, Scratch* scratch) const {
  PieceResult result;
  float *values = scratch->values.data(), *back = scratch->back.data();
  dequantize_row(plan.source->type, from, n, values);
  result.status = quantize_row(plan.target, values, n, to);
  if (!result.status.ok() || plan.target == DType::kF32) return result;
  dequantize_row(plan.target, to, n, back);
  for (int64_t i = 0; i < n; ++i) {
    const double difference = static_cast<double>(back[i]) - static_cast<double>(values[i]);
    result.error2 += difference * difference;
    result.power2 += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return result;
}

template <typename Write>
TensorResult TensorQuantizer::run(const gguf::File& file, const TensorPlan& plan,
                                  const Write& write) {
  TensorResult result;
  const std::span<const uint8_t> data = file.data(*plan.source);
  if (plan.target == plan.source->type) {
    result.status = write(data);
    return result;
  }
  const int64_t n_values = static_cast<int64_t>(plan.source->n_elements());
  const uint64_t from_bytes = row_bytes(plan.source->type, kPieceValues);
  const uint64_t to_bytes = row_bytes(plan.target, kPieceValues);
  double error2 = 0, power2 = 0;
  for (int64_t begin = 0; begin < n_values; begin += kBatchPieces * kPieceValues) {
    const int64_t n_batch = std::min(kBatchPieces * kPieceValues, n_values - begin);
    const int64_t n_pieces = ceil_div(n_batch, kPieceValues);
    const uint8_t* from = data.data() + row_bytes(plan.source->type, static_cast<uint64_t>(begin));
    out_.resize(row_bytes(plan.target, static_cast<uint64_t>(n_batch)));
    results_.assign(static_cast<size_t>(n_pieces), {});
    pool_.parallel_for(n_pieces, 1, [&](int64_t first, int64_t last, int thread) {
      for (int64_t p = first; p < last; ++p) {
        const int64_t n = std::min(kPieceValues, n_batch - p * kPieceValues);
        const uint64_t place = static_cast<uint64_t>(p);
        results_[place] = quantize_piece(plan, from + place * from_bytes, n,
                                         out_.data() + place * to_bytes, &scratch_[thread]);
      }
    });
    for (size_t p = 0; p < results_.size(); ++p) {
      const PieceResult& piece = results_[p];
      if (!piece.status.ok()) {
        const int64_t place = begin + static_cast<int64_t>(p) * kPieceValues;
        result.status = piece.status.with_context(
            fmt::format("{} (counting from value {})", plan.source->name, place));
        result.does_not_fit = true;
        return result;
      }
      error2 += piece.error2;
      power2 += piece.power2;
    }
    result.status = write(std::span<const uint8_t>(out_));
    if (!result.status.ok()) return result;
  }
  result.relative_rms = power2 > 0 ? std::sqrt(error2 / power2) : 0;
  return result;
}

void declare(const gguf::File& file, const std::vector<TensorPlan>& plan, DType wanted,
             gguf::Writer* writer) {
  bool is_quantized = false;
  for (const gguf::File::Entry& entry : file.entries()) writer->copy(entry);
  // The result is one file.
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) writer->remove(key);
  for (const TensorPlan& tensor : plan) {
    const auto ne = std::span(tensor.source->ne).first(static_cast<size_t>(tensor.source->n_dims));
    writer->add_tensor(tensor.source->name, tensor.target, ne);
    is_quantized |= traits_of(tensor.target).block_size > 1;
  }
  writer->set_u32("general.file_type", file_type_of(plan, wanted));
  if (is_quantized) writer->set_u32("general.quantization_version", 2);
}

void print_tensor(const TensorPlan& plan, double relative_rms) {
  const bool is_lossy = plan.target != plan.source->type && plan.target != DType::kF32;
  fmt::print("{:<40}  {:<18}  {:>7} -> {:<7}  {}{}\n", printable(plan.source->name, 100),
             gguf::shape_text(*plan.source), name_of(plan.source->type), name_of(plan.target),
             is_lossy ? fmt::format("error {:.4f} %", 100 * relative_rms) : std::string("exact"),
             plan.note.empty() ? "" : "  (" + plan.note + ")");
}

struct Attempt {
  Status status;
  std::string pin;  // not empty: try again with this tensor in F32
  double worst_error = 0;
};

// Writes OUT once through; gives up at the first tensor whose values do not fit.
Attempt write_file(const gguf::File& file, const std::vector<TensorPlan>& plan, DType wanted,
                   const QuantizeFlags& flags, TensorQuantizer* quantizer) {
  Attempt attempt;
  gguf::Writer writer;
  declare(file, plan, wanted, &writer);
  attempt.status = writer.begin(flags.out);
  if (!attempt.status.ok()) return attempt;
  constexpr double kMiB = 1 << 20;
  double total = 0, done = 0;
  for (const TensorPlan& tensor : plan) total += static_cast<double>(tensor.source->n_bytes) / kMiB;
  Progress progress("quantizing", "MiB");
  const std::atomic<bool>* interrupted = &catch_interrupts();
  for (const TensorPlan& tensor : plan) {
    uint64_t tensor_done = 0;
    const uint64_t tensor_bytes = row_bytes(tensor.target, tensor.source->n_elements());
    const TensorResult result =
        quantizer->run(file, tensor, [&](std::span<const uint8_t> bytes) -> Status {
          const double share = static_cast<double>(tensor_done) / static_cast<double>(tensor_bytes);
          progress.update(done + share * static_cast<double>(tensor.source->n_bytes) / kMiB, total,
                          tensor.source->name);
          tensor_done += bytes.size();
          // Leaving through the status lets the writer remove its temporary file.
          if (*interrupted) return cancelled("interrupted; nothing was written");
          return writer.write(bytes);
        });
    if (!result.status.ok()) {
      attempt.status = result.status;
      if (result.does_not_fit) attempt.pin = tensor.source->name;
      return attempt;
    }
    file.release(*tensor.source);
    done += static_cast<double>(tensor.source->n_bytes) / kMiB;
    attempt.worst_error = std::max(attempt.worst_error, result.relative_rms);
    if (!flags.quiet) {
      progress.clear();
      print_tensor(tensor, result.relative_rms);
    }
  }
  progress.finish();
  attempt.status = writer.finish();
  return attempt;
}

// The result, read back with all checks, must be what was planned.
Status validate(const std::string& path, const std::vector<TensorPlan>& plan) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(path));
  if (file.tensors().size() != plan.size()) {
    return bad_data(fmt::format("{}: {} tensors were read back, {} written", path,
                                file.tensors().size(), plan.size()));
  }
  for (const TensorPlan& tensor : plan) {
    const gguf::TensorInfo* found = file.find_tensor(tensor.source->name);
    if (found != nullptr && found->type == tensor.target && found->ne == tensor.source->ne)
      continue;
    return bad_data(fmt::format("{}: tensor {} was not read back as written", path,
                                printable(tensor.source->name, 100)));
  }
  return ok_status();
}

Status quantize(const QuantizeFlags& flags) {
  const std::optional<DType> wanted = dtype_from_name(flags.type);
  const std::vector<DType>& targets = quantize_targets();
  if (!wanted || std::find(targets.begin(), targets.end(), *wanted) == targets.end()) {
    std::string names;
    for (const DType type : targets) names += fmt::format(" {}", name_of(type));
    return invalid_argument(fmt::format("cannot quantize to \"{}\"; the targets are{}",
                                        printable(flags.type, 40), names));
  }
  const double start_s = seconds_now();
  OKIBI_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(flags.in));
  OKIBI_RETURN_IF_ERROR(check_out_is_not_in(flags.in, flags.out, file));
  TensorQuantizer quantizer(flags.n_threads);
  std::set<std::string, std::less<>> pinned;
  while (true) {
    const std::vector<TensorPlan> plan = plan_quantization(file, *wanted, pinned);
    const Attempt attempt = write_file(file, plan, *wanted, flags, &quantizer);
    if (!attempt.pin.empty() && pinned.insert(attempt.pin).second) {
      fmt::print(stderr, "okibi: {}; starting over with this tensor in F32\n",
                 printable(attempt.status.message(), 400));
      continue;
    }
    OKIBI_RETURN_IF_ERROR(attempt.status);
    OKIBI_RETURN_IF_ERROR(validate(flags.out, plan));
    OKIBI_ASSIGN_OR_RETURN(const gguf::File result, gguf::File::open(flags.out));
    fmt::print("{}: {} ({} in the input), largest error {:.4f} %, {:.1f} s\n", flags.out,
               format_bytes(result.file_bytes()), format_bytes(file.file_bytes()),
               100 * attempt.worst_error, seconds_now() - start_s);
    return ok_status();
  }
}

}  // namespace

void add_quantize(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<QuantizeFlags>();
  std::string names;
  for (const DType type : quantize_targets()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(type));
  }
  CLI::App* command = app.add_subcommand(
      "quantize", "Write a model with its matrices in another type; the error of each is shown");
  command->add_option("IN", flags->in, "a .gguf file; of a split model, any shard")->required();
  command->add_option("OUT", flags->out, "file to write; an existing one is replaced")->required();
  command->add_option("TYPE", flags->type, names)->required();
  command->add_option("--threads", flags->n_threads, "threads to use")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--quiet", flags->quiet, "print the summary only");
  command->callback([flags, exit_code] {
    const Status status = quantize(*flags);
    *exit_code = status.ok() ? 0 : report(status);
    if (status.code() == StatusCode::kCancelled) *exit_code = kExitInterrupted;
  });
}

}  // namespace okibi::apps
