// Times the products of the vector levels and checks them first: gemv against gemm and the
// levels against each other to the bit, and both against a double product of the dequantised
// weights.
//   bench_linear [check] [roofs] [gemv] [gemm] [TYPE...] [level=NAME] [threads=N] [rows=M] [mib=N]
//                [n_in=N] [seconds=S]
// Shares are of the roof measured in the same run, by the same number of threads.
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "cpu/kernel_table.h"
#include "kernels/roofs.h"
#include "kernels/weights.h"
#include "tensor/dequantize.h"
#include "tensor/dtype.h"

namespace okibi::bench {
namespace {

struct Options {
  bool check = false, roofs = false, gemv = false, gemm = false;
  std::vector<int> types;
  std::string level;
  int threads = 1;
  int64_t rows = 512, mib = 64, n_in = 4096;
  double seconds = 0.6;  // per measurement
};

struct Level {
  std::string name;
  cpu::KernelTable table;
};

std::vector<Level> make_levels(bool amx) {
  std::vector<Level> levels;
  cpu::KernelTable table;
  cpu::reference::install(table);
  cpu::avx2::install(table);
  levels.push_back({"avx2", table});
  cpu::avx512::install(table);
  levels.push_back({"avx512", table});
  if (amx) {
    cpu::amx::install(table);
    levels.push_back({"amx", table});
  }
  return levels;
}

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Runs body(thread) on n threads at once and returns the best of many rounds, a round being the
// processor time of its slowest thread: neighbours on this machine only ever make a round slower,
// and the time they take away is not counted.
double best_seconds(int n_threads, const std::function<void(int)>& body, double budget = 0.6) {
  double best = 1e30, spent = 0;
  for (int round = 0; round < 400 && (spent < budget || round < 5); ++round) {
    std::vector<double> times(static_cast<size_t>(n_threads));
    const auto timed = [&](int t) {
      const double start = thread_seconds();
      body(t);
      times[static_cast<size_t>(t)] = thread_seconds() - start;
    };
    std::vector<std::thread> others;
    for (int t = 1; t < n_threads; ++t) others.emplace_back(timed, t);
    timed(0);
    for (std::thread& t : others) t.join();
    const double time = *std::max_element(times.begin(), times.end());
    best = std::min(best, time);
    spent += time;
  }
  return best;
}

struct Roofs {
  double vnni = 0, amx = 0, read = 0;  // multiply-adds, multiply-adds, bytes per second
};

Roofs measure_roofs(const Options& o, bool amx) {
  Roofs r;
  constexpr int64_t kRounds = 200000;
  double work = 0;
  const double vnni = best_seconds(o.threads, [&](int) { work = vnni_rounds(kRounds); });
  r.vnni = work * o.threads / vnni;
  if (amx) {
    const double t = best_seconds(o.threads, [&](int) { work = amx_rounds(kRounds); });
    r.amx = work * o.threads / t;
  }
  const int64_t bytes = (o.mib << 20) / o.threads;
  const Buffer buffer(bytes * o.threads + 8192);
  const double read = best_seconds(
      o.threads, [&](int t) { work = read_rounds(1, buffer.data() + t * bytes, bytes); });
  r.read = work * o.threads / read;
  fmt::print(
      "roofs, {} thread(s): VNNI {:.0f} Gmac/s, AMX {:.0f} Gmac/s, read {} MiB {:.1f} GB/s\n",
      o.threads, r.vnni / 1e9, r.amx / 1e9, o.mib, r.read / 1e9);
  return r;
}

cpu::ProductArgs whole(const Matrix& m, const Inputs& in, int64_t n_rows, float* out,
                       uint8_t* scratch) {
  cpu::ProductArgs args;
  args.w = m.view;
  args.a = in.view;
  args.panel_end = m.n_panels;
  args.row_end = n_rows;
  args.out = out;
  args.out_stride = m.view.n_out;
  args.scratch = scratch;
  return args;
}

Buffer make_scratch(const cpu::LinearKernels& k, int64_t n_in) {
  return Buffer(k.scratch_bytes != nullptr ? k.scratch_bytes(n_in) : 64);
}

// ---- checks

double error_against_double(int type, const std::vector<uint8_t>& rows, int64_t n_out, int64_t n_in,
                            const Inputs& in, int64_t n_rows, const float* out) {
  const int64_t row_size = static_cast<int64_t>(rows.size()) / n_out;
  std::vector<float> w(static_cast<size_t>(n_in));
  double error = 0, power = 0;
  for (int64_t o = 0; o < n_out; ++o) {
    dequantize_row(static_cast<DType>(type), rows.data() + o * row_size, n_in, w.data());
    for (int64_t r = 0; r < n_rows; ++r) {
      double sum = 0;
      const float* x = in.view.x + r * in.view.x_stride;
      for (int64_t k = 0; k < n_in; ++k) sum += double{w[static_cast<size_t>(k)]} * double{x[k]};
      const double difference = out[r * n_out + o] - sum;
      error += difference * difference;
      power += sum * sum;
    }
  }
  return error / power;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], 4) == 0) continue;
    fmt::print("  DIFFERENT {}: at {} {:.9g} and {:.9g}\n", what, i, a[i], b[i]);
    return false;
  }
  return true;
}

bool check_type(const std::vector<Level>& levels, int type) {
  bool good = true;
  double error = 0;
  const int64_t block = traits_of(static_cast<DType>(type)).block_size;
  for (const int64_t n_rows : {1, 3, 6, 15, 16, 17, 31, 33, 50, 77}) {
    const int64_t n_in = n_rows % 3 == 0 ? 1280 : std::max<int64_t>(256, block);
    const int64_t n_out = 33 + n_rows % 2 * 20;
    const std::vector<uint8_t> rows = random_weights(type, n_out, n_in, 7);
    std::vector<float> first;
    for (const Level& level : levels) {
      const cpu::LinearKernels& k = level.table.linear[type];
      const Matrix m = pack(k, rows, n_out, n_in);
      const Inputs in = random_inputs(level.table, k.activation, n_rows, n_in, 11);
      const Buffer scratch = make_scratch(k, n_in);
      std::vector<float> a(static_cast<size_t>(n_rows * n_out), -1.0f), b = a;
      k.gemv(whole(m, in, n_rows, a.data(), scratch.data()));
      k.gemm(whole(m, in, n_rows, b.data(), scratch.data()));
      good &= same_bits(a, b, fmt::format("gemv and gemm, {} rows", n_rows).c_str());
      if (first.empty()) first = b;
      good &= same_bits(first, b, fmt::format("levels, {} rows", n_rows).c_str());
      error = std::max(error, error_against_double(type, rows, n_out, n_in, in, n_rows, b.data()));
    }
  }
  good &= error < 2e-3;
  fmt::print("{:8} {} NMSE {:.2e}\n", name_of(static_cast<DType>(type)), good ? "ok  " : "BAD ",
             error);
  return good;
}

// ---- times

void time_gemv(const Options& o, const Level& level, int type, const Roofs& roofs) {
  const cpu::LinearKernels& k = level.table.linear[type];
  const int64_t n_in = o.n_in;
  const int64_t panel = k.panel_bytes(n_in);
  const int64_t n_out =
      std::max<int64_t>(1, (o.mib << 20) / panel / o.threads) * k.panel_rows * o.threads;
  // One panel's bytes, repeated: the values do not matter here, the memory does.
  const std::vector<uint8_t> rows = random_weights(type, k.panel_rows, n_in, 3);
  const Matrix one = pack(k, rows, k.panel_rows, n_in);
  Matrix m;
  m.view = one.view;
  m.view.n_out = n_out;
  m.n_panels = n_out / k.panel_rows;
  m.memory = Buffer(m.n_panels * panel + 8192);
  m.view.data = m.memory.data();
  for (int64_t p = 0; p < m.n_panels; ++p) {
    std::memcpy(m.memory.data() + p * panel, one.memory.data(), static_cast<size_t>(panel));
  }
  for (const int64_t n_rows : {int64_t{1}, int64_t{4}}) {
    const Inputs in = random_inputs(level.table, k.activation, n_rows, n_in, 5);
    std::vector<float> out(static_cast<size_t>(n_rows * n_out));
    const int64_t scratch_bytes = k.scratch_bytes != nullptr ? k.scratch_bytes(n_in) : 64;
    std::vector<Buffer> scratch;
    for (int t = 0; t < o.threads; ++t) scratch.emplace_back(scratch_bytes);
    const double time = best_seconds(o.threads, [&](int t) {
      cpu::ProductArgs args = whole(m, in, n_rows, out.data(), scratch[t].data());
      args.panel_begin = m.n_panels * t / o.threads;
      args.panel_end = m.n_panels * (t + 1) / o.threads;
      k.gemv(args);
    });
    const double bytes = static_cast<double>(m.n_panels * panel);
    fmt::print("{:24} rows {} {:7.2f} GB/s  {:5.1f} % of read  ({:.1f} Gweights/s)\n", k.gemv_name,
               n_rows, bytes / time / 1e9, 100 * bytes / time / roofs.read,
               static_cast<double>(n_in * n_out) / time / 1e9);
  }
}

struct GemmTimes {
  double kernel = 1e30, vnni = 1e30, amx = 1e30;  // seconds per multiply-add
};

// One thread. The work is cut as the backend cuts it, a few panels per call; a piece is short
// enough to fall between two interruptions, and the roofs are measured between pieces, so that all
// three meet the same state of a shared machine. The best piece counts.
GemmTimes time_pieces(const Options& o, const cpu::LinearKernels& k, cpu::ProductArgs args,
                      int64_t n_panels, bool amx) {
  constexpr int64_t kPanels = 4;
  GemmTimes best;
  double spent = 0;
  const auto timed = [&](double* least, const auto& body) {
    const double start = thread_seconds();
    const double work = body();
    const double time = thread_seconds() - start;
    *least = std::min(*least, time / work);
    spent += time;
  };
  const int64_t n_pieces = std::max<int64_t>(1, n_panels / kPanels);
  for (int64_t i = 0; spent < o.seconds || i < 2 * n_pieces; ++i) {
    args.panel_begin = i % n_pieces * kPanels;
    args.panel_end = std::min(args.panel_begin + kPanels, n_panels);
    timed(&best.kernel, [&] {
      k.gemm(args);
      return static_cast<double>((args.panel_end - args.panel_begin) * k.panel_rows * args.w.n_in *
                                 args.row_end);
    });
    timed(&best.vnni, [] { return vnni_rounds(8000); });
    if (amx) timed(&best.amx, [] { return amx_rounds(1000); });
  }
  return best;
}

void time_gemm(const Options& o, const Level& level, int type, const Roofs& roofs) {
  const cpu::LinearKernels& k = level.table.linear[type];
  const bool amx = level.name == "amx";
  struct Shape {
    int64_t n_out, n_in;
  };
  for (const Shape& s : {Shape{1024, 1024}, Shape{4608, 1024}, Shape{1024, 4608}}) {
    const std::vector<uint8_t> rows = random_weights(type, s.n_out, s.n_in, 3);
    const Matrix m = pack(k, rows, s.n_out, s.n_in);
    const Inputs in = random_inputs(level.table, k.activation, o.rows, s.n_in, 5);
    const Buffer out(o.rows * s.n_out * 4);
    const int64_t scratch_bytes = k.scratch_bytes != nullptr ? k.scratch_bytes(s.n_in) : 64;
    std::vector<Buffer> scratch;
    for (int t = 0; t < o.threads; ++t) scratch.emplace_back(scratch_bytes);
    const auto args_of = [&](int t) {
      cpu::ProductArgs args =
          whole(m, in, o.rows, out.as<float>(), scratch[static_cast<size_t>(t)].data());
      args.panel_begin = m.n_panels * t / o.threads;
      args.panel_end = m.n_panels * (t + 1) / o.threads;
      return args;
    };
    double rate = 0, vnni = roofs.vnni, tiles = roofs.amx;
    if (o.threads == 1) {
      const GemmTimes best = time_pieces(o, k, args_of(0), m.n_panels, amx);
      rate = 1 / best.kernel;
      vnni = 1 / best.vnni;
      tiles = 1 / best.amx;
    } else {
      const double time = best_seconds(
          o.threads, [&](int t) { k.gemm(args_of(t)); }, o.seconds);
      rate = static_cast<double>(s.n_out * s.n_in * o.rows) / time;
    }
    fmt::print("{:24} {:4}x{:4} rows {:3} {:7.1f} Gmac/s  {:5.1f} % of VNNI", k.gemm_name, s.n_out,
               s.n_in, o.rows, rate / 1e9, 100 * rate / vnni);
    if (amx) fmt::print("  {:5.1f} % of AMX", 100 * rate / tiles);
    fmt::print("  (roofs {:.0f} {:.0f})\n", vnni / 1e9, amx ? tiles / 1e9 : 0);
  }
}

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "check") {
      o->check = true;
    } else if (arg == "roofs") {
      o->roofs = true;
    } else if (arg == "gemv") {
      o->gemv = true;
    } else if (arg == "gemm") {
      o->gemm = true;
    } else if (arg.starts_with("level=")) {
      o->level = arg.substr(6);
    } else if (arg.starts_with("threads=")) {
      o->threads = std::atoi(arg.c_str() + 8);
    } else if (arg.starts_with("rows=")) {
      o->rows = std::atoi(arg.c_str() + 5);
    } else if (arg.starts_with("seconds=")) {
      o->seconds = std::atof(arg.c_str() + 8);
    } else if (arg.starts_with("n_in=")) {
      o->n_in = std::atoi(arg.c_str() + 5);
    } else if (arg.starts_with("mib=")) {
      o->mib = std::atoi(arg.c_str() + 4);
    } else if (const auto type = dtype_from_name(arg)) {
      o->types.push_back(static_cast<int>(*type));
    } else {
      fmt::print("{}: expected check, roofs, gemv, gemm, a weight type or NAME=VALUE\n", arg);
      return false;
    }
  }
  if (o->threads < 1 || o->rows < 1 || o->mib < 1) return false;
  if (o->types.empty()) {
    size_t n = 0;
    const DTypeTraits* all = dtype_table(&n);
    for (size_t i = 0; i < n; ++i) {
      if (all[i].is_weight) o->types.push_back(static_cast<int>(all[i].type));
    }
  }
  return true;
}

int run(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, &o)) return 2;
  const bool amx = permit_amx();
  const std::vector<Level> levels = make_levels(amx);
  bool good = true;
  if (o.check) {
    for (const int type : o.types) good &= check_type(levels, type);
  }
  if (!o.roofs && !o.gemv && !o.gemm) return good ? 0 : 1;
  const Roofs roofs = o.roofs || o.gemv || o.threads > 1 ? measure_roofs(o, amx) : Roofs();
  for (const Level& level : levels) {
    if (!o.level.empty() && o.level != level.name) continue;
    for (const int type : o.types) {
      if (o.gemv) time_gemv(o, level, type, roofs);
      if (o.gemm) time_gemm(o, level, type, roofs);
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace okibi::bench

int main(int argc, char** argv) {
  return okibi::bench::run(argc, argv);
}
