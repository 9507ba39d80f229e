#include "train/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace gradus::train {

void fail_system(const char* operation, const std::string& path) {
  const char* reason = std::strerror(errno);
  fail("cannot ", operation, " ", path, ": ", reason);
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void Disk::make_directory(const std::string& path) const {
  announce("make directory", path);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  check(!error, "cannot make directory ", path, ": ", error.message());
}

void Disk::rename(const std::string& from, const std::string& to) const {
  announce("rename", from);
  if (std::rename(from.c_str(), to.c_str()) != 0) fail_system("rename to", to);
}

void Disk::remove_all(const std::string& path) const {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(path, error)))
    for (const auto& entry : fs::directory_iterator(path, error)) remove_all(entry.path().string());
  announce("remove", path);
  fs::remove(path, error);
  check(!error, "cannot remove ", path, ": ", error.message());
}

void Disk::sync_directory(const std::string& path) const {
  announce("sync", path);
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) fail_system("open", path);
  // EINVAL: the file system (some network ones) has no sync of directories.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) fail_system("sync", path);
}

void Disk::write_file(const std::string& path, const std::string& text) const {
  OutputFile file(*this, path);
  file.write(text.data(), text.size());
  file.finish();
}

OutputFile::OutputFile(const Disk& disk, const std::string& path) : disk_(disk), path_(path) {
  disk.announce("create", path);
  file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_) fail_system("create", path);
}

void OutputFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    disk_.announce("write", path_);
    const ssize_t written = ::write(file_.get(), next, std::min(bytes, disk_.piece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_system("write", path_);
    next += written, bytes -= size_t(written), size_ += size_t(written);
  }
}

void OutputFile::finish() {
  disk_.announce("sync", path_);
  if (::fsync(file_.get()) != 0) fail_system("sync", path_);
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);  // advice: refusing it is no error
  disk_.announce("close", path_);
  if (::close(file_.release()) != 0) fail_system("close", path_);
}

}  // namespace gradus::train
