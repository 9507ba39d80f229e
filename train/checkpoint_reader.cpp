#include "train/checkpoint_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>

#include "train/disk.h"
#include "train/hash.h"

namespace gradus::train {
namespace {

namespace fs = std::filesystem;

void read_bytes(const std::string& path, int64_t first, std::vector<std::byte>& out) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail_system("open", path);
  for (size_t done = 0; done < out.size();) {
    const ssize_t n =
        ::pread(file.get(), out.data() + done, out.size() - done, off_t(first) + off_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_system("read", path);
    check(n > 0, "", path, " ends at byte ", first + int64_t(done), ", ", out.size() - done,
          " bytes early");
    done += size_t(n);
  }
}

std::string read_whole(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  check(!error, "cannot read ", path, ": ", error.message());
  std::vector<std::byte> bytes(size);
  read_bytes(path, 0, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<Box> boxes_of(const StoredTensor& tensor) {
  std::vector<Box> boxes;
  for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
  return boxes;
}

// One line for everything of one kind: "  missing: a, b".
void append(std::string& report, const char* kind, const std::set<std::string>& items) {
  const char* separator = ": ";
  if (!items.empty()) report.append("\n  ").append(kind);
  for (const std::string& item : items) {
    report.append(separator).append(item);
    separator = ", ";
  }
}

}  // namespace

CheckpointReader::CheckpointReader(std::string path) : path_(std::move(path)) {
  const std::string file = path_ + "/" + kIndexFile, text = read_whole(file);
  const std::string line = hash_of(text.data(), text.size()) + "  " + kIndexFile + "\n";
  check(read_whole(path_ + "/" + kIndexHashFile) == line, "", file,
        " is damaged: its hash is not the one in ", kIndexHashFile);
  index_ = parse_index(text, file);

  std::map<std::string, int64_t> needed;
  for (const auto& [name, tensor] : index_.tensors)
    for (const StoredBox& box : tensor.boxes)
      needed[box.file] = std::max(needed[box.file], box.first_byte + box.bytes);
  for (const auto& [name, bytes] : needed) {
    std::error_code error;
    const auto size = fs::file_size(path_ + "/" + name, error);
    check(!error, "", path_, "/", name, ": ", error.message());
    check(int64_t(size) >= bytes, "", path_, "/", name, " is cut: it has ", size, " of ", bytes,
          " bytes");
  }
}

void CheckpointReader::check_fit(std::span<const WantedBox> wanted, Unexpected unexpected,
                                 const std::set<std::string>& elsewhere) const {
  std::set<std::string> missing, other, faulty, unwanted;
  if (unexpected == Unexpected::error)
    for (const auto& [name, tensor] : index_.tensors)
      if (!elsewhere.contains(name)) unwanted.insert(name);

  for (const WantedBox& want : wanted) {
    check(lies_in(want.box, want.shape), "checkpoint: the box ", want.box, " wanted of ", want.name,
          " is not inside ", want.shape);
    unwanted.erase(want.name);
    const auto found = index_.tensors.find(want.name);
    if (found == index_.tensors.end()) {
      missing.insert(want.name);
      continue;
    }
    const StoredTensor& stored = found->second;
    std::ostringstream text;
    if (stored.dtype != want.dtype || stored.shape != want.shape) {
      text << want.name << " is " << stored.dtype << ' ' << stored.shape << ", expected "
           << want.dtype << ' ' << want.shape;
      other.insert(text.str());
    } else if (const auto fault = tiling_fault(stored.shape, boxes_of(stored)); !fault.empty()) {
      faulty.insert(want.name + " (" + fault + ")");
    }
  }
  std::string report;
  append(report, "missing", missing);
  append(report, "unexpected", unwanted);
  append(report, "other type or shape", other);
  append(report, "not filled exactly once", faulty);
  check(report.empty(), "checkpoint ", path_, " does not fit what is to be loaded:", report, "\n");
}

void CheckpointReader::load(std::span<const WantedBox> wanted, Unexpected unexpected,
                            const std::set<std::string>& elsewhere) const {
  check_fit(wanted, unexpected, elsewhere);
  for (const WantedBox& want : wanted)
    for (const StoredBox& stored : index_.tensors.at(want.name).boxes)
      if (intersect(stored.box, want.box)) read(want.name, stored);
  for (const WantedBox& want : wanted) fill(want);
}

void CheckpointReader::fill(const WantedBox& want) const {
  for (const StoredBox& stored : index_.tensors.at(want.name).boxes) {
    const auto part = intersect(stored.box, want.box);
    if (!part) continue;
    const std::vector<std::byte> bytes = read(want.name, stored);
    copy_part(*part, bytes.data(), stored.box, static_cast<std::byte*>(want.data), want.box,
              size_of(want.dtype));
  }
}

std::vector<std::byte> CheckpointReader::read(const std::string& name, const StoredBox& box) const {
  const std::string file = path_ + "/" + box.file;
  std::vector<std::byte> bytes(size_t(box.bytes));
  read_bytes(file, box.first_byte, bytes);
  check(hash_of(bytes.data(), bytes.size()) == box.hash, "checkpoint is damaged: ", name, " in ",
        file, " (bytes ", box.first_byte, " to ", box.first_byte + box.bytes,
        ") does not have the hash it was saved with; resume from an earlier step");
  return bytes;
}

void CheckpointReader::verify() const {
  for (const auto& [name, tensor] : index_.tensors) {
    const std::string fault = tiling_fault(tensor.shape, boxes_of(tensor));
    check(fault.empty(), "checkpoint ", path_, ": ", name, ": ", fault);
    for (const StoredBox& box : tensor.boxes) read(name, box);
  }
}

}  // namespace gradus::train
