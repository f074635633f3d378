// `okibi quantize` and `okibi inspect` from their command lines, and the choice of types.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/printable.h"
#include "apps/quantize_plan.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"
#include "unit/gguf_bytes.h"
#include "unit/golden_quants.h"

namespace okibi::apps {
namespace {

namespace fs = std::filesystem;

gguf::TensorInfo tensor(std::string name, std::array<uint64_t, 4> ne) {
  gguf::TensorInfo info;
  info.name = std::move(name);
  info.ne = ne;
  return info;
}

TEST(QuantizePlan, RoundsMatricesAndKeepsWhatIsSensitive) {
  EXPECT_TRUE(is_quantizable(tensor("token_embd.weight", {256, 1000, 1, 1})));
  EXPECT_TRUE(is_quantizable(tensor("blk.0.ffn_down_exps.weight", {256, 256, 4, 1})));
  EXPECT_TRUE(is_quantizable(tensor("blk.0.shortconv.in_proj.weight", {256, 768, 1, 1})));
  for (const char* name :
       {"blk.0.attn_norm.weight", "token_embd_norm.weight", "blk.0.ffn_gate_inp.weight",
        "blk.0.ffn_gate_inp_shexp.weight", "blk.0.ssm_conv1d.weight", "blk.1.ple_conv1d.weight",
        "blk.0.shortconv.conv.weight", "v.position_embd.weight", "blk.0.attn_q.bias",
        "rope_freqs"}) {
    EXPECT_FALSE(is_quantizable(tensor(name, {256, 8, 1, 1}))) << name;
  }
  EXPECT_FALSE(is_quantizable(tensor("output.weight", {256, 1, 1, 1})));
}

TEST(QuantizePlan, FallsBackWhereRowsDoNotFitTheBlock) {
  EXPECT_EQ(fitting_type(DType::kQ4_K, 512), DType::kQ4_K);
  EXPECT_EQ(fitting_type(DType::kQ4_K, 576), DType::kQ5_0);
  EXPECT_EQ(fitting_type(DType::kQ5_K, 576), DType::kQ5_1);
  EXPECT_EQ(fitting_type(DType::kQ6_K, 576), DType::kQ8_0);
  EXPECT_EQ(fitting_type(DType::kIQ4_NL, 576), DType::kIQ4_NL);
  EXPECT_EQ(fitting_type(DType::kQ4_K, 48), DType::kF16);
  EXPECT_EQ(fitting_type(DType::kQ8_0, 48), DType::kF16);
  EXPECT_EQ(fitting_type(DType::kBF16, 7), DType::kBF16);
}

class QuantizeCommand : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("okibi_quantize_" + std::string(test->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    out_ = (folder_ / "out.gguf").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Exit code; what was printed is in stdout_ and stderr_.
  int run(const std::vector<std::string>& arguments) {
    CLI::App app;
    int exit_code = 0;
    add_quantize(app, &exit_code);
    add_inspect(app, &exit_code);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    app.parse(reversed);
    stdout_ = testing::internal::GetCapturedStdout();
    stderr_ = testing::internal::GetCapturedStderr();
    return exit_code;
  }

  std::string write_matrix(const std::vector<float>& values, uint64_t n_in) const {
    const std::string path = (folder_ / "in.gguf").string();
    gguf::Writer writer;
    writer.set_string("general.architecture", "test");
    const uint64_t ne[] = {n_in, values.size() / n_in};
    writer.add_tensor("a.weight", DType::kF32, ne);
    EXPECT_TRUE(writer.begin(path).ok());
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    EXPECT_TRUE(writer.write({bytes, values.size() * sizeof(float)}).ok());
    EXPECT_TRUE(writer.finish().ok());
    return path;
  }

  fs::path folder_;
  std::string out_, stdout_, stderr_;
  const std::string bf16_ =
      std::string(OKIBI_GOLDEN_DIR) + "/qwen4exp-small/qwen4exp-small-bf16.gguf";
};

std::vector<float> floats_of(const gguf::File& file, const gguf::TensorInfo& info) {
  std::vector<float> values(info.n_elements());
  dequantize_row(info.type, file.data(info).data(), static_cast<int64_t>(values.size()),
                 values.data());
  return values;
}

TEST_F(QuantizeCommand, WritesEachTensorAsTheQuantiserWould) {
  ASSERT_EQ(run({"quantize", bf16_, out_, "q4_k", "--threads", "2"}), 0) << stderr_;
  const auto in = gguf::File::open(bf16_), out = gguf::File::open(out_);
  ASSERT_TRUE(in.ok() && out.ok());
  EXPECT_TRUE(out->warnings().empty());
  EXPECT_EQ(*out->get_u32("general.file_type"), 14u);
  EXPECT_EQ(*out->get_u32("general.quantization_version"), 2u);
  EXPECT_EQ(out->entries().size(), in->entries().size());
  for (const auto& entry : in->entries()) EXPECT_TRUE(out->has(entry.key)) << entry.key;
  ASSERT_EQ(out->tensors().size(), in->tensors().size());
  size_t n_blocks = 0;
  for (const gguf::TensorInfo& source : in->tensors()) {
    const gguf::TensorInfo* target = out->find_tensor(source.name);
    ASSERT_NE(target, nullptr);
    EXPECT_EQ(target->ne, source.ne);
    n_blocks += target->type == DType::kQ4_K;
    if (source.n_elements() > 300000) continue;  // the search takes its time
    std::vector<float> values = floats_of(*in, source);
    std::vector<uint8_t> expected(target->n_bytes);
    ASSERT_TRUE(quantize_row(target->type, values.data(), static_cast<int64_t>(values.size()),
                             expected.data())
                    .ok());
    const auto data = out->data(*target);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), expected.begin())) << source.name;
  }
  EXPECT_GT(n_blocks, 20u);
}

TEST_F(QuantizeCommand, ToF32IsTheExactDequantisation) {
  const std::string middle = (folder_ / "middle.gguf").string();
  ASSERT_EQ(run({"quantize", bf16_, middle, "Q5_1", "--quiet"}), 0) << stderr_;
  ASSERT_EQ(run({"quantize", middle, out_, "F32"}), 0) << stderr_;
  const auto in = gguf::File::open(middle), out = gguf::File::open(out_);
  ASSERT_TRUE(in.ok() && out.ok());
  EXPECT_EQ(*out->get_u32("general.file_type"), 0u);
  for (const gguf::TensorInfo& source : in->tensors()) {
    const gguf::TensorInfo* target = out->find_tensor(source.name);
    if (!traits_of(source.type).is_weight) continue;
    EXPECT_EQ(target->type, DType::kF32);
    EXPECT_EQ(floats_of(*out, *target), floats_of(*in, source)) << source.name;
  }
}

TEST_F(QuantizeCommand, KeepsATensorInF32WhoseValuesDoNotFit) {
  std::vector<float> values(512, 1.0f);
  values[300] = -3e9f;
  const std::string in = write_matrix(values, 256);
  for (const char* type : {"Q4_K", "Q4_1", "F16", "Q8_0"}) {
    ASSERT_EQ(run({"quantize", in, out_, type}), 0) << stderr_;
    EXPECT_NE(stderr_.find("starting over"), std::string::npos) << stderr_;
    EXPECT_NE(stdout_.find("values beyond the range of"), std::string::npos) << stdout_;
    const auto out = gguf::File::open(out_);
    EXPECT_EQ(out->tensors()[0].type, DType::kF32);
    EXPECT_EQ(floats_of(*out, out->tensors()[0]), values);
  }
}

TEST_F(QuantizeCommand, LabelsAFileThatConsistsOfFallbacksByWhatItHolds) {
  const std::string in = write_matrix(std::vector<float>(320, 0.5f), 32);
  ASSERT_EQ(run({"quantize", in, out_, "Q6_K"}), 0) << stderr_;
  const auto out = gguf::File::open(out_);
  EXPECT_EQ(out->tensors()[0].type, DType::kQ8_0);
  EXPECT_EQ(*out->get_u32("general.file_type"), 7u);
  EXPECT_NE(stdout_.find("rows of 32 do not fit Q6_K"), std::string::npos);
}

TEST_F(QuantizeCommand, JoinsSplitFiles) {
  using namespace gguf_bytes;  // NOLINT
  for (uint16_t no = 0; no < 2; ++no) {
    RawFile raw;
    raw.keys = {key_text("general.architecture", "x"), key("split.no", 2, number(no)),
                key("split.count", 2, number<uint16_t>(2)),
                key("split.tensors.count", 5, number<int32_t>(2))};
    raw.tensors = {gguf_bytes::tensor(no == 0 ? "a.weight" : "b.weight", {32, 2}, 0, 0)};
    raw.data = std::string(256, '\0');
    const auto bytes = raw.build();
    std::ofstream(folder_ / (no == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf"))
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  const std::string first = (folder_ / "m-00001-of-00002.gguf").string();
  const std::string second = (folder_ / "m-00002-of-00002.gguf").string();
  ASSERT_EQ(run({"quantize", first, out_, "Q8_0"}), 0) << stderr_;
  const auto out = gguf::File::open(out_);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->tensors().size(), 2u);
  EXPECT_FALSE(out->has("split.count"));
  EXPECT_EQ(run({"quantize", first, second, "Q8_0"}), 1);
  EXPECT_NE(stderr_.find("is the input file"), std::string::npos);
}

TEST_F(QuantizeCommand, RefusesToOverwriteItsInputUnderAnyName) {
  const std::string in = write_matrix(std::vector<float>(64, 0.5f), 32);
  EXPECT_EQ(run({"quantize", in, in, "Q8_0"}), 1);
  EXPECT_NE(stderr_.find("is the input file"), std::string::npos) << stderr_;
  fs::create_symlink(in, out_);
  EXPECT_EQ(run({"quantize", in, out_, "Q8_0"}), 1);
  EXPECT_EQ(gguf::File::open(in)->tensors()[0].type, DType::kF32);
}

TEST_F(QuantizeCommand, RefusesUnknownTargetsAndNamesThePossibleOnes) {
  for (const char* type : {"Q2_K", "I32", "Q8_K", "banana"}) {
    EXPECT_EQ(run({"quantize", bf16_, out_, type}), 1) << type;
    EXPECT_NE(stderr_.find("the targets are F32 F16"), std::string::npos) << stderr_;
  }
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(QuantizeCommand, InspectPrintsJsonThatCountsTheFile) {
  ASSERT_EQ(run({"inspect", bf16_, "--json"}), 0) << stderr_;
  const auto json = nlohmann::json::parse(stdout_);
  const auto file = gguf::File::open(bf16_);
  EXPECT_EQ(json["file_bytes"], file->file_bytes());
  EXPECT_EQ(json["tensors"].size(), file->tensors().size());
  EXPECT_EQ(json["metadata"]["qwen4exp.block_count"]["value"], 4);
  EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["n_elements"], 1024);
  EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["value"].size(), 16u);
  uint64_t n_parameters = 0;
  for (const auto& info : file->tensors()) n_parameters += info.n_elements();
  EXPECT_EQ(json["n_parameters"], n_parameters);
  // An architecture that this build runs gets its memory plan.
  ASSERT_FALSE(json["memory"].contains("refused"));
  EXPECT_GT(json["memory"]["needed_bytes"].get<uint64_t>(), 0u);
  ASSERT_EQ(run({"inspect", OKIBI_GOLDEN_DIR "/lfm2vl-tiny/lfm2vl-tiny-f32.gguf", "--json", "--ctx",
                 "1024"}),
            0)
      << stderr_;
  const auto memory = nlohmann::json::parse(stdout_)["memory"];
  EXPECT_EQ(memory["n_ctx"], 1024);
  uint64_t sum = 0;
  for (const auto& row : memory["rows"]) sum += row.get<uint64_t>();
  EXPECT_EQ(memory["needed_bytes"], sum);
  EXPECT_TRUE(memory["fits"].get<bool>());
}

TEST_F(QuantizeCommand, InspectNamesTheTensorThatHoldsNaN) {
  std::vector<float> values(64, 0.5f);
  const std::string sound = write_matrix(values, 32);
  EXPECT_EQ(run({"inspect", sound, "--check-tensors", "--tensors"}), 0) << stderr_;
  EXPECT_NE(stdout_.find("a.weight"), std::string::npos);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  const std::string broken = write_matrix(values, 32);
  EXPECT_EQ(run({"inspect", broken, "--check-tensors"}), 1);
  EXPECT_NE(stderr_.find("\"a.weight\": a number is not finite at value 40 (row 1)"),
            std::string::npos)
      << stderr_;
}

TEST(Printable, KeepsTextAndDefusesControlCharacters) {
  EXPECT_EQ(printable("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80", 100),
            "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("a\x1b[31m\n\t\\", 100), "a\\x1b[31m\\n\\t\\\\");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m",
                      100),
            "\\xc2\\x9b31m");                                    // C1 escape
  EXPECT_EQ(printable("\xe2\x80\xae", 100), "\\xe2\\x80\\xae");  // direction override
  EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80", 100), "\\xff\\xc3(\\xed\\xa0\\x80");
  EXPECT_EQ(printable("abcdef", 3), "abc... (6 bytes)");
  EXPECT_EQ(count_text(134515008), "134.5 M");
}

}  // namespace
}  // namespace okibi::apps
