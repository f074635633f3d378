// Decoding allocates nothing: a token costs its kernels and no visit to the heap.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "okibi/session.h"
#include "tiny_models.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<int64_t> n_allocations = 0;

void* counted(std::size_t n) {
  if (counting.load(std::memory_order_relaxed)) n_allocations.fetch_add(1);
  void* p = std::malloc(n == 0 ? 1 : n);
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace

void* operator new(std::size_t n) {
  return counted(n);
}
void* operator new[](std::size_t n) {
  return counted(n);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

namespace okibi::test {
namespace {

// Allocations while 200 tokens are decoded one by one, after 600 that let every vector grow.
int64_t allocations_while_decoding(const std::string& path) {
  auto engine = Engine::open({.model_path = path, .n_threads = 2, .n_ctx = 2048});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  auto session = (*engine)->new_session();
  EXPECT_TRUE(session.ok());
  const std::vector<TokenId> prompt(600, 65);
  EXPECT_TRUE((*session)->append(prompt).ok());
  const TokenId token = 66;
  for (int i = 0; i < 64; ++i) EXPECT_TRUE((*session)->append(std::span(&token, 1)).ok());
  n_allocations = 0;
  counting = true;
  for (int i = 0; i < 200; ++i) {
    if (!(*session)->append(std::span(&token, 1)).ok()) return -1;
  }
  counting = false;
  return n_allocations;
}

TEST(Allocations, DecodingATokenTouchesTheHeapOnlyToGrowALogarithmOfTimes) {
  for (const char* family : {"llama", "lfm2"}) {
    const int64_t n = allocations_while_decoding(tiny_model(family, DType::kQ8_0));
    EXPECT_GE(n, 0);
    // Three page tables may grow, and a recurrent session keeps one return point per 256 tokens;
    // one allocation per token would be 200.
    EXPECT_LE(n, 12) << family;
  }
}

TEST(Allocations, AreCounted) {
  n_allocations = 0;
  counting = true;
  delete new int(1);
  counting = false;
  EXPECT_GE(n_allocations, 1);
}

}  // namespace
}  // namespace okibi::test
