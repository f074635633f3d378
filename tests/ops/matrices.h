// Random matrices in file form, and their exact products.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ops/ops_fixture.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace okibi::ops_test {

// Parameters of tests over every level of the host and some weight types.
struct TypeCase {
  CpuLevel level;
  DType type;
};
inline std::vector<TypeCase> cases_of(std::initializer_list<DType> types) {
  std::vector<TypeCase> cases;
  for (const CpuLevel level : host_levels()) {
    for (const DType t : types) cases.push_back({level, t});
  }
  return cases;
}
inline std::string type_case_name(const testing::TestParamInfo<TypeCase>& info) {
  return std::string(cpu_level_name(info.param.level)) + "_" +
         std::string(name_of(info.param.type));
}

// A random matrix in file form and the values that it stands for.
struct Matrix {
  DType type;
  int64_t n_in, n_out;
  std::vector<uint8_t> file;
  std::vector<float> values;

  ops::WeightSource source(float scale = 1.0f) const {
    return {"test.weight", type, n_in, n_out, file.data(), scale};
  }
};

inline Matrix make_matrix(DType type, int64_t n_in, int64_t n_out, uint32_t seed) {
  Matrix m{type, n_in, n_out, {}, {}};
  const auto bytes = row_bytes(type, static_cast<uint64_t>(n_in));
  m.file.resize(bytes * static_cast<size_t>(n_out));
  m.values.resize(static_cast<size_t>(n_in * n_out));
  const std::vector<float> random = random_floats(n_in * n_out, seed, 0.1f);
  for (int64_t o = 0; o < n_out; ++o) {
    uint8_t* row = m.file.data() + static_cast<size_t>(o) * bytes;
    EXPECT_TRUE(quantize_row(type, random.data() + o * n_in, n_in, row).ok());
    dequantize_row(type, row, n_in, m.values.data() + o * n_in);
  }
  return m;
}

REFERENCE_CODE inline std::vector<double> product_reference(const Matrix& m,
                                                            std::span<const float> x) {
  const auto n_rows = static_cast<int64_t>(x.size()) / m.n_in;
  std::vector<double> y(static_cast<size_t>(n_rows * m.n_out));
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t o = 0; o < m.n_out; ++o) {
      const float* w = m.values.data() + o * m.n_in;
      const float* row = x.data() + r * m.n_in;
      double sum = 0;
      for (int64_t i = 0; i < m.n_in; ++i) sum += static_cast<double>(w[i]) * row[i];
      y[static_cast<size_t>(r * m.n_out + o)] = sum;
    }
  }
  return y;
}

}  // namespace okibi::ops_test
