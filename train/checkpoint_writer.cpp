#include "train/checkpoint_writer.h"

#include <array>
#include <filesystem>

#include "train/checkpoint_directory.h"
#include "train/checkpoint_reader.h"
#include "train/hash.h"

namespace gradus::train {

namespace fs = std::filesystem;

BoxFile::BoxFile(const Disk& disk, const std::string& directory, const std::string& name)
    : file_(disk, directory + "/" + name), name_(name) {}

void BoxFile::add(const std::string& name, DType dtype, const Shape& shape, const Box& box,
                  const void* data) {
  constexpr size_t kAlignment = 64;
  constexpr std::array<char, kAlignment> kZeros{};
  file_.write(kZeros.data(), (kAlignment - file_.size() % kAlignment) % kAlignment);

  const int64_t bytes = box.numel() * size_of(dtype);
  check(lies_in(box, shape), "checkpoint: the box ", box, " of ", name, " is not inside ", shape);
  merge(tensors_, {{name,
                    {dtype,
                     shape,
                     {{box, name_, int64_t(file_.size()), bytes, hash_of(data, size_t(bytes))}}}}});
  file_.write(data, size_t(bytes));
}

StoredTensors BoxFile::finish() {
  file_.finish();
  return std::move(tensors_);
}

CheckpointWriter::CheckpointWriter(std::string directory, int64_t step, Disk disk)
    : disk_(std::move(disk)),
      directory_(std::move(directory)),
      published_(checkpoint_path(directory_, step)),
      temporary_(published_ + kTemporarySuffix) {
  index_.step = step;
  set_damaged_aside(directory_, step, disk_);
  disk_.make_directory(directory_);
  remove_unfinished(directory_, disk_);
  try {
    disk_.make_directory(temporary_);
    boxes_.emplace(disk_, temporary_, "rank_0.bin");
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;  // what cannot be removed now goes with the next save
  if (!done_) fs::remove_all(temporary_, ignored);
}

void CheckpointWriter::add(const std::string& name, DType dtype, const Shape& shape,
                           const void* data) {
  add(name, dtype, shape, whole_box(shape), data);
}

void CheckpointWriter::add(const std::string& name, DType dtype, const Shape& shape, const Box& box,
                           const void* data) {
  boxes_->add(name, dtype, shape, box, data);
}

void CheckpointWriter::add(const StoredTensors& written_by_another_rank) {
  merge(index_.tensors, written_by_another_rank);
}

std::string CheckpointWriter::publish(const nlohmann::json& meta, std::optional<double> score) {
  index_.score = score;
  index_.meta = share(meta);
  merge(index_.tensors, boxes_->finish());
  write_index();
  disk_.sync_directory(temporary_);
  verify();
  disk_.rename(temporary_, published_);
  done_ = true;
  disk_.sync_directory(directory_);
  replace_file(directory_ + "/latest", checkpoint_name(index_.step) + "\n", disk_);
  return published_;
}

void CheckpointWriter::write_index() {
  const std::string text = to_text(index_);
  disk_.write_file(temporary_ + "/" + kIndexFile, text);
  disk_.write_file(temporary_ + "/" + kIndexHashFile,
                   hash_of(text.data(), text.size()) + "  " + kIndexFile + "\n");
}

void CheckpointWriter::verify() const {
  const CheckpointReader written(temporary_);
  check(to_text(written.index()) == to_text(index_), "", temporary_,
        " reads back differently from what was written: the disk or its driver is at fault");
  written.verify();
}

}  // namespace gradus::train
