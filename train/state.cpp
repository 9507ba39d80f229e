#include "train/state.h"

#include "ops/ops.h"

namespace gradus::train {
namespace {

std::byte* bytes_at(const Tensor& t) { return static_cast<std::byte*>(t.raw()); }

// One piece of a tensor as contiguous host memory of its own.
struct Staged {
  ShardPiece piece;
  std::vector<std::byte> bytes;

  Staged(const ShardPiece& piece, DType dtype)
      : piece(piece), bytes(size_t(piece.here.numel() * size_of(dtype))) {}
};

}  // namespace

Shape StateTensor::global_shape() const {
  Shape whole = tensor.shape();
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
  for (const StateTensor& s : state) {
    const Tensor host = contiguous(to(s.tensor.detach(), kCpu));
    const Box local = whole_box(host.shape());
    for (const ShardPiece& piece : pieces_of(host.shape(), s.shard)) {
      Staged staged(piece, host.dtype());
      copy_part(piece.here, bytes_at(host), local, staged.bytes.data(), piece.here,
                size_of(host.dtype()));
      writer.add(s.name, host.dtype(), s.global_shape(), piece.global, staged.bytes.data());
    }
  }
}

void load_state(const CheckpointReader& reader, std::span<const StateTensor> state,
                Unexpected unexpected) {
  std::vector<std::vector<Staged>> staged(state.size());
  std::vector<WantedBox> wanted;
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor& t = state[i].tensor;
    for (const ShardPiece& piece : pieces_of(t.shape(), state[i].shard)) {
      Staged& s = staged[i].emplace_back(piece, t.dtype());
      wanted.push_back(
          {state[i].name, t.dtype(), state[i].global_shape(), piece.global, s.bytes.data()});
    }
  }
  reader.load(wanted, unexpected);
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor& t = state[i].tensor;
    const bool padded = state[i].shard.size != 0;
    const Tensor host = padded ? zeros(t.shape(), t.dtype()) : empty(t.shape(), t.dtype());
    for (const Staged& s : staged[i])
      copy_part(s.piece.here, s.bytes.data(), s.piece.here, bytes_at(host), whole_box(t.shape()),
                size_of(t.dtype()));
    copy_(t.detach(), host);
  }
}

}  // namespace gradus::train
