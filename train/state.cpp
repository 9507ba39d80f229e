#include "train/state.h"

#include "ops/ops.h"

namespace gradus::train {
namespace {

std::byte* bytes_at(const Tensor& t) { return static_cast<std::byte*>(t.raw()); }

// What is stored as one box: `here` in the shard of this rank, `global` in the whole. The tensor holds
// all of `run`, contiguous, from its element `first` on.
struct Piece {
  Box run;
  int64_t first;
  Box here, global;
};

std::vector<Piece> parts_of(const StateTensor& s) {
  const Shape local = s.local_shape();
  const int64_t begin = s.range ? s.range->begin : 0, end = s.range ? s.range->end : local.numel();
  std::vector<Piece> pieces;
  for (const Box& run : boxes_of(local, begin, end))
    for (const ShardPiece& p : pieces_of(local, s.shard)) {
      const auto here = intersect(run, p.here);
      if (!here) continue;
      Box global = *here;
      for (int d = 0; d < local.rank(); ++d)
        global.offset[d] += p.global.offset[d] - p.here.offset[d];
      pieces.push_back({run, position(local, run.offset) - begin, *here, global});
    }
  return pieces;
}

// One piece of a tensor as contiguous host memory of its own.
struct Staged {
  Piece piece;
  int64_t element;  // bytes
  std::vector<std::byte> bytes;

  Staged(const Piece& piece, DType dtype)
      : piece(piece), element(size_of(dtype)), bytes(size_t(piece.here.numel() * element)) {}

  void take(const Tensor& host) {
    copy_part(piece.here, bytes_at(host) + piece.first * element, piece.run, bytes.data(),
              piece.here, element);
  }
  void put(const Tensor& host) const {
    copy_part(piece.here, bytes.data(), piece.here, bytes_at(host) + piece.first * element,
              piece.run, element);
  }
};

template <class File>
void save(File& file, std::span<const StateTensor> state) {
  for (const StateTensor& s : state) {
    if (!s.is_written) continue;
    const Tensor host = contiguous(to(s.tensor.read(), kCpu));
    for (const Piece& piece : parts_of(s)) {
      Staged staged(piece, host.dtype());
      staged.take(host);
      file.add(s.name, host.dtype(), s.global_shape(), piece.global, staged.bytes.data());
    }
  }
}

// What was read, in a tensor's shape; 0 where nothing is stored, in padding.
Tensor joined(const optim::StateView& like, std::span<const Staged> pieces) {
  int64_t elements = 0;
  for (const Staged& s : pieces) elements += s.piece.here.numel();
  const bool is_all = elements == like.numel();
  const Tensor host =
      is_all ? empty(like.shape(), like.dtype()) : zeros(like.shape(), like.dtype());
  for (const Staged& s : pieces) s.put(host);
  return host;
}

}  // namespace

Shape StateTensor::global_shape() const {
  Shape whole = local_shape();
  if (shard.dim >= 0) whole[shard.dim] = shard.whole(whole[shard.dim]);
  return whole;
}

std::vector<StateTensor> parameters_of(nn::Module& module) {
  std::vector<StateTensor> state;
  for (const auto& [name, parameter] : module.named_parameters())
    state.push_back({name, parameter, parameter.shard});
  return state;
}

std::vector<ShardPiece> pieces_of(const Shape& local, const nn::Shard& shard) {
  const nn::ShardMap check_that_it_fits(local, shard);
  if (shard.dim < 0) return {{whole_box(local), whole_box(local)}};
  const int64_t length = local[shard.dim] / shard.pieces;
  std::vector<ShardPiece> pieces;
  for (int64_t i = 0; i < shard.pieces; ++i) {
    Box box = whole_box(local);
    box.shape[shard.dim] = shard.real(length);
    if (box.shape[shard.dim] == 0) continue;  // all of it is padding
    Box here = box, global = box;
    here.offset[shard.dim] = i * length;
    global.offset[shard.dim] = (i * shard.ranks + shard.rank) * length;
    pieces.push_back({here, global});
  }
  return pieces;
}

void save_state(CheckpointWriter& writer, std::span<const StateTensor> state) {
  save(writer, state);
}

void save_state(BoxFile& file, std::span<const StateTensor> state) { save(file, state); }

void load_state(const CheckpointReader& reader, std::span<const StateTensor> state,
                Unexpected unexpected, const std::set<std::string>& elsewhere) {
  std::vector<std::vector<Staged>> staged(state.size());
  std::vector<WantedBox> wanted;
  for (size_t i = 0; i < state.size(); ++i) {
    const DType dtype = state[i].tensor.dtype();
    for (const Piece& piece : parts_of(state[i])) {
      Staged& s = staged[i].emplace_back(piece, dtype);
      wanted.push_back(
          {state[i].name, dtype, state[i].global_shape(), piece.global, s.bytes.data()});
    }
  }
  reader.load(wanted, unexpected, elsewhere);
  for (size_t i = 0; i < state.size(); ++i)
    state[i].tensor.write(joined(state[i].tensor, staged[i]));
}

}  // namespace gradus::train
