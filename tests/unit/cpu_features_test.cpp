// Detection against the feature words of real machines.
#include "platform/cpu_features.h"

#include <gtest/gtest.h>

namespace okibi {
namespace {

// Leaf 1 ECX, leaf 7 EBX, ECX, EDX and XCR0 as those processors report them under Linux.
const CpuidRecord kHaswell = {.leaf1_ecx = 0x7ffafbff,
                              .leaf7_ebx = 0x000027ab,
                              .leaf7_ecx = 0x00000000,
                              .leaf7_edx = 0x9c000600,
                              .xcr0 = 0x7,
                              .brand = "Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz"};
const CpuidRecord kSkylakeX = {.leaf1_ecx = 0x7ffefbff,
                               .leaf7_ebx = 0xd39ffffb,
                               .leaf7_ecx = 0x00000008,
                               .leaf7_edx = 0x9c000400,
                               .xcr0 = 0x2e7,
                               .brand = "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz"};
const CpuidRecord kIceLake = {.leaf1_ecx = 0x7ffefbff,
                              .leaf7_ebx = 0xf3bfbffb,
                              .leaf7_ecx = 0x00415f5e,
                              .leaf7_edx = 0xbc000400,
                              .xcr0 = 0x2e7,
                              .brand = "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"};
const CpuidRecord kZen4 = {.leaf1_ecx = 0x7ef8320b,
                           .leaf7_ebx = 0xf1bf97a9,
                           .leaf7_ecx = 0x00405fce,
                           .leaf7_edx = 0x10000010,
                           .xcr0 = 0x2e7,
                           .brand = "AMD EPYC 9R14"};
const CpuidRecord kSapphireRapids = {.leaf1_ecx = 0x7ffefbff,
                                     .leaf7_ebx = 0xf3bfbfeb,
                                     .leaf7_ecx = 0x1b417f5e,
                                     .leaf7_edx = 0xffdd4432,
                                     .xcr0 = 0x602e7,
                                     .amx_permitted = true,
                                     .brand = "Intel(R) Xeon(R) Platinum 8488C"};

TEST(CpuFeatures, MachinesGetTheLevelOfTheirClass) {
  EXPECT_EQ(best_level({}), CpuLevel::kReference);
  EXPECT_EQ(best_level(kHaswell), CpuLevel::kAvx2);
  EXPECT_EQ(best_level(kSkylakeX), CpuLevel::kAvx2) << "AVX-512 without VNNI";
  EXPECT_EQ(best_level(kIceLake), CpuLevel::kAvx512);
  EXPECT_EQ(best_level(kZen4), CpuLevel::kAvx512);
  EXPECT_EQ(best_level(kSapphireRapids), CpuLevel::kAmx);
}

TEST(CpuFeatures, WhatTheSystemDoesNotSaveIsNotUsed) {
  CpuidRecord r = kSapphireRapids;
  r.amx_permitted = false;
  EXPECT_EQ(best_level(r), CpuLevel::kAvx512) << "tile state was refused";
  r = kSapphireRapids;
  r.xcr0 = 0x2e7;
  EXPECT_EQ(best_level(r), CpuLevel::kAvx512) << "tiles are not in XCR0";
  r.xcr0 = 0x7;
  EXPECT_EQ(best_level(r), CpuLevel::kAvx2) << "ZMM is not in XCR0";
  r.xcr0 = 0x60007;
  EXPECT_EQ(best_level(r), CpuLevel::kAvx2) << "tiles without ZMM";
  r.xcr0 = 0x3;
  EXPECT_EQ(best_level(r), CpuLevel::kReference) << "YMM is not in XCR0";
  r = kHaswell;
  r.leaf1_ecx &= ~(1u << 27);
  EXPECT_EQ(best_level(r), CpuLevel::kReference) << "the system does not use XSAVE";
}

TEST(CpuFeatures, EachMissingFeatureCostsTheLevel) {
  for (const int b : {12, 28, 29}) {  // FMA, AVX, F16C
    CpuidRecord r = kSapphireRapids;
    r.leaf1_ecx &= ~(1u << b);
    EXPECT_EQ(best_level(r), CpuLevel::kReference) << "leaf 1 bit " << b;
  }
  for (const int b : {16, 17, 30, 31}) {  // F, DQ, BW, VL
    CpuidRecord r = kSapphireRapids;
    r.leaf7_ebx &= ~(1u << b);
    EXPECT_EQ(best_level(r), CpuLevel::kAvx2) << "leaf 7 bit " << b;
  }
  for (const int b : {22, 24, 25}) {  // AMX-BF16, AMX-TILE, AMX-INT8
    CpuidRecord r = kSapphireRapids;
    r.leaf7_edx &= ~(1u << b);
    EXPECT_EQ(best_level(r), CpuLevel::kAvx512) << "leaf 7 bit " << b;
  }
  for (const int b : {1, 8}) {  // VBMI, GFNI
    CpuidRecord r = kSapphireRapids;
    r.leaf7_ecx &= ~(1u << b);
    EXPECT_EQ(best_level(r), CpuLevel::kAvx512) << "leaf 7 ecx bit " << b;
  }
}

TEST(CpuFeatures, AForcedLevelIsTakenOrRefusedByName) {
  EXPECT_EQ(*choose_level(std::nullopt, kZen4), CpuLevel::kAvx512);
  EXPECT_EQ(*choose_level(CpuLevel::kReference, kZen4), CpuLevel::kReference);
  const Result<CpuLevel> refused = choose_level(CpuLevel::kAmx, kZen4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  for (const char* part : {"amx", "avx512", "AMD EPYC 9R14"}) {
    EXPECT_NE(refused.status().message().find(part), std::string::npos)
        << refused.status().message();
  }
}

TEST(CpuFeatures, NamesAndLevelsAreInverse) {
  for (int i = 0; i < 4; ++i) {
    const auto level = static_cast<CpuLevel>(i);
    EXPECT_EQ(cpu_level_from_name(cpu_level_name(level)), level);
  }
  EXPECT_FALSE(cpu_level_from_name("AVX2").has_value());
  EXPECT_FALSE(cpu_level_from_name("").has_value());
}

TEST(CpuFeatures, TheHostIsReadOnceAndRunsItsOwnBestLevel) {
  EXPECT_EQ(&host_cpu(), &host_cpu());
  EXPECT_TRUE(choose_level(best_level(host_cpu()), host_cpu()).ok());
}

}  // namespace
}  // namespace okibi
