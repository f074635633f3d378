// A model file with some of its keys and tensors changed, for tests of what loaders refuse and
// accept.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gguf/reader.h"
#include "gguf/writer.h"

namespace okibi::test {

class EditedModel {
 public:
  struct Tensor {
    std::string name;
    DType type = DType::kF32;
    std::vector<uint64_t> ne;
    std::vector<uint8_t> bytes;
  };

  explicit EditedModel(const std::string& path) : file_(std::move(gguf::File::open(path)).value()) {
    for (const gguf::File::Entry& e : file_.entries()) writer_.copy(e);
    for (const gguf::TensorInfo& info : file_.tensors()) {
      const auto data = file_.data(info);
      tensors.push_back({info.name,
                         info.type,
                         {info.ne.begin(), info.ne.begin() + std::max(info.n_dims, 1)},
                         {data.begin(), data.end()}});
    }
  }
  ~EditedModel() {
    if (!path_.empty()) std::filesystem::remove(path_);
  }
  EditedModel(const EditedModel&) = delete;
  EditedModel& operator=(const EditedModel&) = delete;

  // Keys are set and removed here, until `write`.
  gguf::Writer& keys() { return writer_; }
  const gguf::File& original() const { return file_; }

  Tensor& tensor(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors[0];
  }
  void drop(const std::string& name) {
    const size_t n = std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
    EXPECT_EQ(n, 1u) << name;
  }
  void add_floats(const std::string& name, std::vector<uint64_t> ne, float value) {
    uint64_t n = 1;
    for (uint64_t d : ne) n *= d;
    const std::vector<float> values(n, value);
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    tensors.push_back({name, DType::kF32, std::move(ne), {bytes, bytes + n * sizeof(float)}});
  }
  // Copies of all tensors of block `from` as block `to`.
  void copy_block(int from, int to) {
    const std::string old_prefix = "blk." + std::to_string(from) + ".";
    std::vector<Tensor> copies;
    for (const Tensor& t : tensors) {
      if (!t.name.starts_with(old_prefix)) continue;
      copies.push_back(t);
      copies.back().name = "blk." + std::to_string(to) + "." + t.name.substr(old_prefix.size());
    }
    tensors.insert(tensors.end(), copies.begin(), copies.end());
  }
  void drop_block(int block) {
    const std::string prefix = "blk." + std::to_string(block) + ".";
    std::erase_if(tensors, [&](const Tensor& t) { return t.name.starts_with(prefix); });
  }

  // Once, last. The file goes with this object.
  const std::string& write() {
    static int n_written = 0;
    path_ = std::filesystem::temp_directory_path() / ("okibi-edited-" + std::to_string(getpid()) +
                                                      "-" + std::to_string(n_written++) + ".gguf");
    for (const Tensor& t : tensors) writer_.add_tensor(t.name, t.type, t.ne);
    EXPECT_TRUE(writer_.begin(path_).ok());
    for (const Tensor& t : tensors) EXPECT_TRUE(writer_.write(t.bytes).ok()) << t.name;
    const Status finished = writer_.finish();
    EXPECT_TRUE(finished.ok()) << finished.message();
    return path_;
  }

  std::vector<Tensor> tensors;

 private:
  gguf::File file_;
  gguf::Writer writer_;
  std::string path_;
};

}  // namespace okibi::test
