// What the tests of linear kernels share: levels of this host, random matrices in file form, packed
// copies, activations, and checks that report in words what is wrong, so that a test can demand
// success of real kernels and failure of broken ones.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernel_table.h"
#include "cpu/make_table.h"
#include "tensor/dtype.h"

namespace okibi::kernel_test {

// Tables of the levels that this machine runs, lowest first; reference is always there.
const std::vector<cpu::KernelTable>& host_tables();

std::vector<DType> weight_types();

// 64-byte aligned, zeroed, readable 64 bytes past the end.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t n = 0)
      : n_(n),
        bytes_(new (std::align_val_t{64}) uint8_t[static_cast<size_t>(n) * sizeof(T) + 64]()) {}
  T* data() { return reinterpret_cast<T*>(bytes_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.get()); }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  int64_t size() const { return n_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const { operator delete[](p, std::align_val_t{64}); }
  };
  int64_t n_;
  std::unique_ptr<uint8_t[], Free> bytes_;
};

// A matrix as it stands in a file, and its values.
struct Matrix {
  DType type = DType::kF32;
  int64_t n_in = 0, n_out = 0;
  std::vector<uint8_t> rows;
  std::vector<float> values;
};

enum class Scales { kUsual, kZero, kSubnormal, kLargest };
using Rng = std::mt19937_64;

// Random codes under random finite scales of the given kind.
Matrix random_matrix(DType type, int64_t n_in, int64_t n_out, Scales scales, Rng& rng);
// From file bytes, dequantised.
Matrix matrix_of(DType type, int64_t n_in, int64_t n_out, std::vector<uint8_t> rows);

// n_rows Gaussian rows; every fifth block of 256 is zero when `with_zeros`.
std::vector<float> random_activations(int64_t n_rows, int64_t n_in, bool with_zeros, Rng& rng);

// A product that one level can compute: packed weights and activations in the form they ask for.
class Product {
 public:
  Product(const cpu::KernelTable& table, const cpu::LinearKernels& kernels, const Matrix& matrix,
          const std::vector<float>& x, float scale = 1.0f);

  const cpu::LinearKernels& kernels() const { return kernels_; }
  int64_t n_rows() const { return n_rows_; }
  int64_t n_panels() const { return n_panels_; }
  const Matrix& matrix() const { return *matrix_; }
  // The activations as the kernel sees them: quantised ones multiplied out.
  std::vector<double> seen_activations() const;

  // One call of the gemv or gemm; `out` has n_rows rows of stride().
  void run(bool gemm, int64_t panel_begin, int64_t panel_end, int64_t row_begin, int64_t row_end,
           std::vector<float>* out, bool accumulate = false);
  int64_t stride() const { return matrix_->n_out + 3; }
  // All of it by one call, rows out_stride apart.
  void run_whole(bool gemm, float* out, int64_t out_stride);
  // All of it by one call, without the stride: (n_rows, n_out).
  std::vector<float> whole(bool gemm);
  // Row `row` by itself, at index 0 of its own activation buffer.
  std::vector<float> alone(int64_t row, bool gemm);

  const uint8_t* panel(int64_t i) const { return packed_.data() + i * panel_bytes_; }

 private:
  cpu::ProductArgs whole_args(float* out, int64_t out_stride);

  const cpu::KernelTable* table_;
  cpu::LinearKernels kernels_;
  const Matrix* matrix_;
  std::vector<float> x_;
  float scale_;
  int64_t n_rows_, n_panels_, panel_bytes_;
  Buffer<uint8_t> packed_, scratch_;
  Buffer<float> x_rows_, d_;
  Buffer<int8_t> q_;
  Buffer<int32_t> sums32_;
  Buffer<int16_t> sums16_;
  Buffer<uint8_t> tiles_;
  cpu::Activations a_;
};

// Each returns an empty string, or what was found and what was expected.
// The whole result against the double product, within the tolerances.
std::string check_close(Product& product);
// gemv = gemm, each row alone = among the others, parts = whole, nothing outside is written,
// accumulation adds the result; all to the bit.
std::string check_same_bits(Product& product, Rng& rng);
// Every file row comes back from its panel.
std::string check_unpack(const Product& product);

std::string compare_bits(const std::vector<float>& found, const std::vector<float>& expected,
                         const std::string& what);
double normalised_error(const Product& product, const std::vector<float>& y,
                        const std::vector<double>& x);

}  // namespace okibi::kernel_test
