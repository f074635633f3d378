// Bytes and operations of a token at a depth, and what follows for deeper contexts.
#include "apps/bench_work.h"

#include <gtest/gtest.h>

#include "apps/bench_measure.h"

namespace okibi::apps {
namespace {

// Budget 2048 in blocks of 4, as Qwen3.8-Flash-Next has it; one layer of each kind.
ModelInfo two_layers() {
  ModelInfo info;
  info.weight_bytes_per_token = 1000;
  info.expert_bytes_per_token = 300;
  info.output_bytes = 200;
  info.state_bytes = 50;
  info.macs_per_token = 10;
  info.output_macs = 6;
  info.attention.push_back({.row_bytes = 2, .row_macs = 3});
  info.attention.push_back({.row_bytes = 2048,
                            .row_macs = 12288,
                            .block_tokens = 4,
                            .budget = 2048,
                            .index_key_bytes = 512,
                            .score_macs = 512});
  return info;
}

TEST(BenchWork, RowsAreThoseOfTheSelectionAndTheOpenBlock) {
  const AttentionInfo layer = two_layers().attention[1];
  const uint64_t sizes[][2] = {{1, 1},       {2048, 2048}, {2051, 2051},  {2052, 2048},
                               {2053, 2049}, {2055, 2051}, {262144, 2048}};
  for (const auto& [n, attended] : sizes) {
    EXPECT_EQ(rows_attended(layer, {}, n), attended) << n;
    EXPECT_EQ(rows_attended(layer, {.attend_selected = false}, n), n);
    EXPECT_EQ(blocks_scored(layer, n), n > 2051 ? n / 4 : 0) << n;
  }
  EXPECT_EQ(rows_attended(two_layers().attention[0], {}, 9999), 9999u);
}

TEST(BenchWork, BytesOfADecodedTokenByPart) {
  const uint64_t n = 65536;
  const TokenBytes b = decode_bytes(two_layers(), {}, n - 1, 1);
  EXPECT_EQ(b.dense, 500);
  EXPECT_EQ(b.experts, 300);
  EXPECT_EQ(b.output, 200);
  EXPECT_EQ(b.state, 100);
  EXPECT_EQ(b.kv, 2.0 * n + 2048.0 * 2048);
  EXPECT_EQ(b.index, n / 4 * 512.0);
  EXPECT_EQ(b.total(), 1100 + b.kv + b.index);

  EXPECT_EQ(decode_bytes(two_layers(), {.attend_selected = false}, n - 1, 1).kv, 2050.0 * n);
  // Keys of all positions read, pooled ones written and read.
  EXPECT_EQ(decode_bytes(two_layers(), {.keep_pooled = false}, n - 1, 1).index,
            n * 512.0 + 2 * (n / 4 * 512.0));
  EXPECT_EQ(decode_bytes(two_layers(), {.select_blocks = false}, n - 1, 1).index,
            n / 4 * (512.0 + 2 * (4 + 4 * 8)));
  // A mean over tokens: 2051 sees everything, 2052 scores 513 blocks.
  EXPECT_EQ(decode_bytes(two_layers(), {}, 2050, 2).index, 513 * 512.0 / 2);
}

TEST(BenchWork, OperationsOfATokenByPart) {
  const TokenOps ops = token_ops(two_layers(), {}, 65535, 1, 1);
  EXPECT_EQ(ops.matrices, 2.0 * (10 + 6));
  EXPECT_EQ(ops.attention, 2.0 * (3 * 65536 + 12288 * 2048));
  EXPECT_EQ(ops.scores, 2.0 * 512 * 16384);
  EXPECT_EQ(token_ops(two_layers(), {}, 0, 4, 1).matrices, 2.0 * 10 + 2.0 * 6 / 4);
}

TEST(BenchWork, TokensWithoutLogitsSkipTheTailsOfTheLastLayers) {
  ModelInfo info = two_layers();
  info.tail_macs_per_token = 4;
  info.attention[0].only_tails = true;
  const TokenOps ops = token_ops(info, {}, 10, 5, 2);  // outputs at 14 and 15 positions
  EXPECT_DOUBLE_EQ(ops.matrices, 2.0 * 6 + 2.0 * (4 + 6) * 2 / 5);
  EXPECT_DOUBLE_EQ(ops.attention, 2.0 * (3 * (14 + 15) + 12288 * (11 + 12 + 13 + 14 + 15)) / 5);
  // Every decoded token has logits.
  EXPECT_EQ(token_ops(info, {}, 10, 1, 1).matrices, token_ops(two_layers(), {}, 10, 1, 1).matrices);
}

TEST(BenchWork, ADeeperContextCostsAtLeastWhatItAddsAtTheRoof) {
  BenchRow shallow, deep;
  shallow.test = deep.test = BenchTest::kDecode;
  shallow.n_tokens = 10;
  shallow.median_s = 1;
  shallow.bytes.kv = 100;
  deep.bytes.kv = 300;
  const ops::Roofs roofs{.float_ops_per_s = 50, .read_bytes_per_s = 1000};
  EXPECT_DOUBLE_EQ(limit_of_depth(shallow, deep, roofs), 0.1 + 0.2);
  shallow.test = deep.test = BenchTest::kPrefill;
  deep.ops.scores = 5;
  deep.ops.matrices = 1e9;  // the same at every depth, but for rounding: not counted
  EXPECT_DOUBLE_EQ(limit_of_depth(shallow, deep, roofs), 0.1 + 0.1);
  EXPECT_DOUBLE_EQ(limit_of_depth(shallow, deep, {}), 0.1);
}

}  // namespace
}  // namespace okibi::apps
