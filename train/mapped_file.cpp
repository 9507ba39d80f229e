#include "train/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/disk.h"

namespace gradus::train {

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_system("open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_system("inspect", path);
  check(!S_ISDIR(info.st_mode), "", path, " is a directory, a file is needed");
  check(S_ISREG(info.st_mode), "", path, " is not a regular file: it cannot be mapped into memory");
  check(info.st_size > 0, "", path, " is empty");

  size_ = size_t(info.st_size);
  void* start = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED) fail_system("map", path);
  data_ = {static_cast<const std::byte*>(start),
           [size = size_](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); }};
}

}  // namespace gradus::train
