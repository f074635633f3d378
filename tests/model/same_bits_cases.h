// What the tests of the same-bits machine share: opening the engines of a case, expecting that the
// machine finds nothing, expecting that it finds a planted bug.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/open_engine.h"
#include "model/golden_model.h"
#include "same_bits_machine.h"

namespace okibi::test {

using okibi::testing::host_levels;

struct Case {
  std::string name;
  std::string path;
  std::string level;  // empty: the host's best
  KvCacheType kv_type = KvCacheType::kF16;
  ActivationType activations = ActivationType::kInt8;
  SparseOptions sparse = {};  // of the subject; the cold engine has all switches on
};

inline std::shared_ptr<Engine> open(const Case& c, int n_threads,
                                    const engine::BackendWrapper& wrap = {}) {
  auto engine = engine::open_engine({.model_path = c.path,
                                     .cpu_level = c.level,
                                     .n_threads = n_threads,
                                     .n_ctx = 1024,
                                     .n_sessions = 8,
                                     .kv_type = c.kv_type,
                                     .activations = c.activations,
                                     .sparse = c.sparse},
                                    wrap);
  EXPECT_TRUE(engine.ok()) << c.name << ": " << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

inline std::shared_ptr<Engine> open_cold(Case c) {
  c.sparse = {};
  return open(c, 1);
}

inline void expect_same_bits(const Case& c, int n_programs, MachineOptions options = {}) {
  SCOPED_TRACE(c.name);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // Ten times slower: fewer programs, still several pages and batches long.
  n_programs = (n_programs + 2) / 3;
  options.max_length = 300;
#endif
  for (int n_threads : {1, 2}) {
    std::shared_ptr<Engine> subject = open(c, n_threads), cold = open_cold(c);
    ASSERT_TRUE(subject && cold);
    SameBitsMachine machine(subject, cold, options);
    std::mt19937_64 random(static_cast<uint64_t>(1000 + n_threads));
    for (int i = 0; i < n_programs; ++i) {
      const Program program = machine.random_program(random);
      if (machine.first_difference(program).has_value()) {
        const Program shortest = machine.shrink(program);
        FAIL() << n_threads << " threads, program " << i << " differs from the cold run:\n"
               << to_text(shortest);
      }
    }
  }
}

template <typename Bug>
void expect_found(const char* what, const Case& c) {
  SCOPED_TRACE(what);
  std::shared_ptr<Engine> subject =
      open(c, 1, [](std::unique_ptr<ops::Backend> inner) -> std::unique_ptr<ops::Backend> {
        return std::make_unique<Bug>(std::move(inner));
      });
  std::shared_ptr<Engine> cold = open_cold(c);
  ASSERT_TRUE(subject && cold);
  SameBitsMachine machine(subject, cold, {.max_length = 400});
  std::mt19937_64 random(5);
  for (int i = 0; i < 40; ++i) {
    const Program program = machine.random_program(random);
    if (!machine.first_difference(program).has_value()) continue;
    const Program shortest = machine.shrink(program);
    EXPECT_LE(shortest.size(), 5u) << to_text(shortest);
    EXPECT_TRUE(machine.first_difference(shortest).has_value());
    std::printf("%s, found by program %d, shrunk to:\n%s", what, i, to_text(shortest).c_str());
    return;
  }
  FAIL() << "the planted bug was not found in 40 programs";
}

}  // namespace okibi::test
