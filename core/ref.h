#pragma once
// Intrusive reference counting: the count lies in the object, so a handle is one pointer and making
// one allocates nothing. Counts are atomic, because an object may be freed by another thread.
#include <atomic>
#include <cstdint>
#include <utility>

namespace gradus {

class RefCounted {
 public:
  int64_t use_count() const { return refs_.load(std::memory_order_relaxed); }

 protected:
  RefCounted() = default;
  ~RefCounted() = default;

 private:
  template <class T>
  friend void retain(T* p);
  template <class T>
  friend bool drop(T* p);
  std::atomic<int64_t> refs_{0};
};

template <class T>
void retain(T* p) {
  p->refs_.fetch_add(1, std::memory_order_relaxed);
}
/// True when the last reference is gone.
template <class T>
bool drop(T* p) {
  return p->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

/// A counted pointer to T. T needs `void acquire(T*)` and `void release(T*)` beside it; release
/// destroys the object when the last reference goes.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) {
    if (p_) acquire(p_);
  }
  Ref(const Ref& other) : Ref(other.p_) {}
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~Ref() {
    if (p_) release(p_);
  }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref&) const = default;

 private:
  T* p_ = nullptr;
};

}  // namespace gradus
