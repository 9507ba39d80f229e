#pragma once
// Reads a checkpoint, at the layout it was saved in or at another: for every box that is wanted, the
// stored boxes that meet it are read, verified and copied from.
#include <cstddef>
#include <set>
#include <span>
#include <string>

#include "train/checkpoint_index.h"

namespace gradus::train {

/// A box of a tensor that a load fills.
struct WantedBox {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;  // global
  Box box;
  void* data = nullptr;  // contiguous, host memory
};

/// Whether a load must use everything in the checkpoint. `ignore`: weights without optimizer state.
enum class Unexpected { error, ignore };

class CheckpointReader {
 public:
  /// Error when the directory is no checkpoint, its index is damaged, or a file is missing or short.
  explicit CheckpointReader(std::string path);

  const std::string& path() const { return path_; }
  const CheckpointIndex& index() const { return index_; }
  const nlohmann::json& meta() const { return *index_.meta; }

  /// Error listing every wanted tensor that is missing, every one stored in another type or shape, or
  /// in pieces that do not fill it exactly once, and every stored tensor that nobody wants, here or
  /// `elsewhere`.
  void check_fit(std::span<const WantedBox> wanted, Unexpected unexpected,
                 const std::set<std::string>& elsewhere = {}) const;

  /// Fills all boxes. First checks the fit, then reads and verifies everything, and writes only then:
  /// after an Error the memory is as it was. (Files that change between the two reads are an Error
  /// too, but one that comes after some boxes were filled.)
  void load(std::span<const WantedBox> wanted, Unexpected unexpected = Unexpected::error,
            const std::set<std::string>& elsewhere = {}) const;

  /// The elements of one stored box. Error naming tensor and file when their hash differs.
  std::vector<std::byte> read(const std::string& name, const StoredBox& box) const;

  /// Reads everything; Error when pieces do not fit together or a hash differs.
  void verify() const;

 private:
  void fill(const WantedBox& wanted) const;

  std::string path_;
  CheckpointIndex index_;
};

}  // namespace gradus::train
