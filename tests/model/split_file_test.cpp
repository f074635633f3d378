// A qwen4exp model in two files: the same logits to the bit, whichever shard is named and wherever
// the n-gram table lies. The table stays in its file, also in the second.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "gguf/reader.h"
#include "gguf/writer.h"
#include "model/golden_model.h"

namespace okibi::testing {
namespace {

namespace fs = std::filesystem;
constexpr const char* kWhole = OKIBI_GOLDEN_DIR "/qwen4exp-tiny/qwen4exp-tiny-f32.gguf";
constexpr const char* kTable = "per_layer_token_embd.weight";

class SplitFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "okibi_split_model";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(int number) const {
    return (folder_ / ("m-0000" + std::to_string(number) + "-of-00002.gguf")).string();
  }

  // Shard 2 gets the n-gram table and every other tensor of the layers; shard 1 all else and the
  // keys.
  void write_shards() const {
    const auto whole = gguf::File::open(kWhole);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    for (uint32_t shard = 0; shard < 2; ++shard) {
      std::vector<const gguf::TensorInfo*> mine;
      for (size_t i = 0; i < whole->tensors().size(); ++i) {
        const gguf::TensorInfo& info = whole->tensors()[i];
        const bool second = info.name == kTable || (info.name.starts_with("blk.") && i % 2 == 1);
        if (second == (shard == 1)) mine.push_back(&info);
      }
      gguf::Writer writer;
      if (shard == 0) {
        for (const gguf::File::Entry& entry : whole->entries()) writer.copy(entry);
      }
      writer.set_u32("split.no", shard);
      writer.set_u32("split.count", 2);
      writer.set_i32("split.tensors.count", static_cast<int32_t>(whole->tensors().size()));
      for (const gguf::TensorInfo* info : mine) {
        writer.add_tensor(info->name, info->type,
                          std::span(info->ne).first(static_cast<size_t>(info->n_dims)));
      }
      ASSERT_TRUE(writer.begin(path(static_cast<int>(shard) + 1)).ok());
      for (const gguf::TensorInfo* info : mine) ASSERT_TRUE(writer.write(whole->data(*info)).ok());
      ASSERT_TRUE(writer.finish().ok());
    }
  }

  fs::path folder_;
};

std::vector<TokenId> some_tokens() {
  std::vector<TokenId> ids;
  for (int i = 0; i < 70; ++i) ids.push_back((7 * i + i * i % 11) % 631);
  return ids;
}

EngineOptions options_of(const std::string& path) {
  EngineOptions options;
  options.model_path = path;
  options.n_threads = 2;
  options.n_ctx = 256;
  options.n_sessions = 1;
  return options;
}

TEST_F(SplitFile, GivesTheLogitsOfTheWholeFileFromWhicheverShardIsNamed) {
  write_shards();
  const std::vector<TokenId> ids = some_tokens();
  const auto whole = open_engine(options_of(kWhole));
  ASSERT_NE(whole, nullptr);
  const Walk want = walk(*whole, ids);
  for (int named = 1; named <= 2; ++named) {
    const auto engine = open_engine(options_of(path(named)));
    ASSERT_NE(engine, nullptr);
    const Walk got = walk(*engine, ids, 9);
    ASSERT_EQ(got.rows.size(), want.rows.size());
    for (size_t i = 0; i < got.rows.size(); ++i) {
      ASSERT_EQ(std::memcmp(got.rows[i].data(), want.rows[i].data(), 4 * want.rows[i].size()), 0)
          << "row " << i << ", shard " << named;
    }
  }
}

TEST_F(SplitFile, LeavesTheTableInTheSecondShard) {
  write_shards();
  const auto file = gguf::File::open(path(1));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->n_shards(), 2u);
  const gguf::TensorInfo* table = file->find_tensor(kTable);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->shard, 1u);
  // Asked for by pointer, as the backend does: any part of the table, and what no shard holds.
  const std::span<const uint8_t> data = file->data(*table);
  file->prefetch(data.data(), 1);
  file->prefetch(data.data() + data.size() - 1, 1 << 20);
  file->prefetch(reinterpret_cast<const uint8_t*>(this), 64);
  const Result<MemoryPlan> split = Engine::plan(options_of(path(2)));
  const Result<MemoryPlan> whole = Engine::plan(options_of(kWhole));
  ASSERT_TRUE(split.ok()) << split.status().message();
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(split->needed_bytes, whole->needed_bytes);
}

}  // namespace
}  // namespace okibi::testing
