#pragma once
// A vector whose first N elements lie inside it: the few inputs of an op, without a heap allocation.
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

namespace gradus {

template <class T, int N>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(size_t n) { resize(n); }
  SmallVector(std::initializer_list<T> values) {
    reserve(values.size());
    for (const T& v : values) push_back(v);
  }
  SmallVector(const SmallVector& other) {
    reserve(other.size_);
    for (const T& v : other) push_back(v);
  }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector other) noexcept {
    clear();
    free_heap();
    take(other);
    return *this;
  }
  ~SmallVector() {
    clear();
    free_heap();
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void push_back(T value) {
    if (size_ == capacity_) reserve(2 * capacity_);
    std::construct_at(data_ + size_++, std::move(value));
  }
  void pop_back() { std::destroy_at(data_ + --size_); }
  void clear() {
    while (size_) pop_back();
  }
  void resize(size_t n) {
    while (size_ > n) pop_back();
    reserve(n);
    while (size_ < n) std::construct_at(data_ + size_++);
  }
  void reserve(size_t n) {
    if (n <= capacity_) return;
    T* bigger = std::allocator<T>().allocate(n);
    for (size_t i = 0; i < size_; ++i) {
      std::construct_at(bigger + i, std::move(data_[i]));
      std::destroy_at(data_ + i);
    }
    free_heap();
    data_ = bigger;
    capacity_ = n;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  void free_heap() {
    if (data_ != inline_data()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = inline_data();
    capacity_ = N;
  }
  void take(SmallVector& other) {
    if (other.data_ != other.inline_data()) {
      data_ = std::exchange(other.data_, other.inline_data());
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, N);
      return;
    }
    for (T& v : other) push_back(std::move(v));
    other.clear();
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace gradus
