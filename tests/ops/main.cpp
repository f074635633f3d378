// GoogleTest's main with one flag more: --perf times the cases that are checked.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "ops/ops_fixture.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--perf") == 0) okibi::ops_test::perf_enabled = true;
  }
  std::printf("levels of this host:");
  for (const okibi::CpuLevel level : okibi::ops_test::host_levels()) {
    std::printf(" %s", std::string(okibi::cpu_level_name(level)).c_str());
  }
  std::printf(" (%s)\n", okibi::host_cpu().brand.c_str());
  return RUN_ALL_TESTS();
}
