// Random weights of every type and random activations, for bench_linear.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cpu/kernel_table.h"

namespace okibi::bench {

// 64-byte aligned memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  uint8_t* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
};

// n_out file rows of type number `type`: random codes, scales of ordinary size.
std::vector<uint8_t> random_weights(int type, int64_t n_out, int64_t n_in, uint32_t seed);

// A packed matrix and its memory.
struct Matrix {
  Buffer memory;
  cpu::PackedMatrix view;
  int64_t n_panels = 0;
};
Matrix pack(const cpu::LinearKernels& kernels, const std::vector<uint8_t>& rows, int64_t n_out,
            int64_t n_in);

// Rows of normal values in the formats of kernel_table.h.
struct Inputs {
  Buffer x, q, d, sums, tiles;
  cpu::Activations view;
};
Inputs random_inputs(const cpu::KernelTable& table, cpu::ActivationFormat format, int64_t n_rows,
                     int64_t n_in, uint32_t seed);

}  // namespace okibi::bench
