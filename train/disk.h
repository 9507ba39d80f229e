#pragma once
// File operations of a save. Each one throws Error with the path and the system's message, and each
// one is announced to a hook first: a test stops the process there, and so at every point where a
// crash could strike.
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "core/check.h"

namespace gradus::train {

/// Throws Error "cannot OPERATION PATH: message of errno".
[[noreturn]] void fail_system(const char* operation, const std::string& path);

/// An open file descriptor, closed at the end of its life.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Called before every operation ("write", "sync", "rename" …) with the path it is about to touch.
using DiskHook = std::function<void(const char* operation, const std::string& path)>;

struct Disk {
  DiskHook hook{};
  size_t piece = size_t(1) << 20;  // bytes written by one system call, with the hook before each

  void make_directory(const std::string& path) const;
  void rename(const std::string& from, const std::string& to) const;
  void remove_all(const std::string& path) const;  // a directory entry by entry; absent: nothing

  /// Waits until the directory's entries (created, renamed) are on the medium.
  void sync_directory(const std::string& path) const;

  /// A small file in one go: written, synced, closed.
  void write_file(const std::string& path, const std::string& text) const;

  void announce(const char* operation, const std::string& path) const {
    if (hook) hook(operation, path);
  }
};

/// A new file being written.
class OutputFile {
 public:
  /// Error when the file exists. `disk` must outlive the file.
  OutputFile(const Disk& disk, const std::string& path);

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }
  void write(const void* data, size_t bytes);

  /// Waits until the bytes are on the medium, drops them from the page cache (so that reading back
  /// reads the medium, as far as the system allows) and closes.
  void finish();

 private:
  const Disk& disk_;
  std::string path_;
  Descriptor file_;
  size_t size_ = 0;
};

}  // namespace gradus::train
