// A number of bytes that many holders share: what request bodies take while they arrive, wait and
// run. Whoever holds some owns a Charge, which gives them back when it goes. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace okibi::server {

class ByteBudget {
 public:
  explicit ByteBudget(uint64_t limit) : limit_(limit) {}

  class Charge {
   public:
    Charge() = default;
    Charge(Charge&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), n_(std::exchange(other.n_, 0)) {}
    Charge& operator=(Charge&& other) noexcept {
      if (this == &other) return *this;
      release();
      budget_ = std::exchange(other.budget_, nullptr);
      n_ = std::exchange(other.n_, 0);
      return *this;
    }
    ~Charge() { release(); }

    // Takes n bytes more; false, changing nothing, when the budget has not as many left.
    bool try_grow(ByteBudget& budget, uint64_t n) {
      if (!budget.try_take(n)) return false;
      budget_ = &budget;
      n_ += n;
      return true;
    }
    void release() {
      if (budget_ != nullptr) budget_->used_ -= n_;
      budget_ = nullptr;
      n_ = 0;
    }

   private:
    ByteBudget* budget_ = nullptr;
    uint64_t n_ = 0;
  };

  uint64_t used() const { return used_; }
  uint64_t free() const {
    const uint64_t used = used_;
    return used < limit_ ? limit_ - used : 0;
  }

 private:
  bool try_take(uint64_t n) {
    uint64_t used = used_;
    do {
      if (n > limit_ || used > limit_ - n) return false;
    } while (!used_.compare_exchange_weak(used, used + n));
    return true;
  }

  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
};

}  // namespace okibi::server
