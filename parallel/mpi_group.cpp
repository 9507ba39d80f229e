#include "parallel/mpi_group.h"

#if defined(GRADUS_MPI)

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>
#include <sstream>
#include <thread>

#include "core/random.h"
#include "parallel/rank_order.h"
#include "parallel/wait_limit.h"

namespace gradus::parallel {
namespace {

constexpr int64_t kOneMessage = 16384;  // bytes from all: all-gather and add them everywhere

char* bytes_at(const Tensor& x, int64_t offset = 0) { return static_cast<char*>(x.raw()) + offset; }

}  // namespace

MpiGroup::MpiGroup(std::string name, int rank, std::vector<int> world_ranks, MPI_Comm comm,
                   ProcessOptions options)
    : Group(std::move(name), rank, std::move(world_ranks)), comm_(comm), options_(options) {
  check(options.piece >= 8 && options.piece <= INT_MAX,
        "a piece of a message has from 8 to 2³¹ − 1 bytes, got ", options.piece);
}

MpiGroup::~MpiGroup() {
  int ended = 0;
  (void)MPI_Finalized(&ended);
  if (!ended && comm_ != MPI_COMM_WORLD) (void)MPI_Comm_free(&comm_);
}

// ---- Coming together -----------------------------------------------------------------------------

std::string MpiGroup::waiting() const {
  std::ostringstream out;
  out << "has waited for " << wait_limit(options_.timeout) << " s in " << call_ << ", call "
      << calls_ << " of " << name() << " of " << ranks_text(world_ranks());
  return out.str();
}

/// `peers`: the rank that each request is about, or none for those about all.
void MpiGroup::wait(MpiRequests requests, const std::vector<int>& peers) {
  finish(requests, wait_limit(options_.timeout), [&](const std::vector<int>& unfinished) {
    std::vector<int> missing;
    for (int i : unfinished)
      if (size_t(i) < peers.size()) missing.push_back(world_ranks()[size_t(peers[size_t(i)])]);
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    if (!missing.empty()) return waiting() + "; not there: " + ranks_text(missing);
    std::vector<int> others = world_ranks();
    std::erase(others, world_ranks()[size_t(rank())]);
    return waiting() + (others.size() > 1 ? "; one of " : "; ") + ranks_text(others) +
           " has stopped in the midst of it";
  });
}

void MpiGroup::come_together(const Call& call) {
  call_ = call;
  ++calls_;
  if (options_.delay_seed != 0) {
    const uint64_t random = mix(mix(options_.delay_seed + uint64_t(rank())) + calls_);
    std::this_thread::sleep_for(std::chrono::nanoseconds(random >> 46));
  }
  std::ostringstream text;
  Call plain = call;
  plain.inside = {};
  text << plain;
  const uint64_t mine = fnv1a(text.str().c_str());
  std::vector<uint64_t> theirs(size_t(size()), mine);
  MpiRequests requests;
  std::vector<int> peers;
  for (int k = 0; k < size(); ++k) {
    if (k == rank()) continue;
    peers.push_back(k);
    check_mpi(MPI_Irecv(&theirs[size_t(k)], 1, MPI_UINT64_T, k, kControlTag, comm_,
                        &requests.emplace_back()),
              "receiving");
  }
  for (int k = 0; k < size(); ++k)
    if (k != rank())
      check_mpi(MPI_Isend(&mine, 1, MPI_UINT64_T, k, kControlTag, comm_, &requests.emplace_back()),
                "sending");
  wait(std::move(requests), peers);
  if (std::any_of(theirs.begin(), theirs.end(), [&](uint64_t t) { return t != mine; }))
    fail_to_agree();
}

void MpiGroup::fail_to_agree() {
  constexpr int64_t kText = 256;
  std::ostringstream mine;
  mine << call_;
  std::string text = mine.str().substr(0, kText - 1);
  text.resize(kText);  // zeros end it
  const Bytes all = gather(text.data(), kText);
  const auto said = [&](int k) { return std::string(all.data() + k * kText); };
  int other = 1;
  while (other + 1 < size() && said(other) == said(0)) ++other;
  fail("the ranks do not agree in call ", calls_, " of ", name(), " of ", ranks_text(world_ranks()),
       ": rank ", world_ranks()[0], " called ", said(0), ", rank ", world_ranks()[size_t(other)],
       " called ", said(other));
}

// ---- Pieces --------------------------------------------------------------------------------------

/// Block k of `out` goes to rank k; what comes back is in the order of the ranks.
MpiGroup::Bytes MpiGroup::exchange(const Bytes& out, int64_t bytes) {
  Bytes in(out.size());
  MpiRequests request(1);
  check_mpi(MPI_Ialltoall(out.data(), int(bytes), MPI_BYTE, in.data(), int(bytes), MPI_BYTE, comm_,
                          &request[0]),
            "all-to-all");
  wait(std::move(request), {});
  return in;
}

MpiGroup::Bytes MpiGroup::gather(const char* mine, int64_t bytes) {
  Bytes all(size_t(bytes) * size_t(size()));
  MpiRequests request(1);
  check_mpi(MPI_Iallgather(mine, int(bytes), MPI_BYTE, all.data(), int(bytes), MPI_BYTE, comm_,
                           &request[0]),
            "all-gather");
  wait(std::move(request), {});
  return all;
}

namespace {

std::vector<const void*> blocks(const std::vector<char>& all, int n) {
  std::vector<const void*> starts;
  for (int k = 0; k < n; ++k) starts.push_back(all.data() + all.size() / size_t(n) * size_t(k));
  return starts;
}

}  // namespace

/// x ← Σ_k x_k for `count` elements, at most a piece.
void MpiGroup::reduce_piece(char* x, int64_t count, DType dtype, Reduce how) {
  const int64_t element = size_of(dtype), bytes = count * element;
  if (bytes * size() <= kOneMessage) {
    const Bytes all = gather(x, bytes);
    return reduce_in_rank_order(dtype, how, blocks(all, size()), {x}, count);
  }
  const int64_t slice = (count + size() - 1) / size();  // the last may be shorter: zeros fill it
  Bytes out(size_t(slice * element) * size_t(size()));
  std::memcpy(out.data(), x, size_t(bytes));
  const Bytes in = exchange(out, slice * element);
  reduce_in_rank_order(dtype, how, blocks(in, size()), {out.data()}, slice);
  const Bytes sums = gather(out.data(), slice * element);
  std::memcpy(x, sums.data(), size_t(bytes));
}

// ---- Collectives ---------------------------------------------------------------------------------

void MpiGroup::barrier() { come_together(call_of("barrier")); }

void MpiGroup::all_reduce(const Tensor& x, Reduce how) {
  Call call = call_of("all_reduce", x);
  call.how = how;
  come_together(call);
  in_pieces(bytes_of(x), [&](int64_t begin, int64_t end) {
    reduce_piece(bytes_at(x, begin), (end - begin) / size_of(x.dtype()), x.dtype(), how);
  });
}

void MpiGroup::broadcast(const Tensor& x, int root) {
  Call call = call_of("broadcast", x);
  call.root = root;
  come_together(call);
  in_pieces(bytes_of(x), [&](int64_t begin, int64_t end) {
    MpiRequests request(1);
    check_mpi(MPI_Ibcast(bytes_at(x, begin), int(end - begin), MPI_BYTE, root, comm_, &request[0]),
              "broadcast");
    wait(std::move(request), {});
  });
}

void MpiGroup::all_gather(const Tensor& all, const Tensor& part) {
  come_together(call_of("all_gather", part));
  const int64_t whole = bytes_of(part);
  in_pieces(whole, [&](int64_t begin, int64_t end) {
    const Bytes pieces = gather(bytes_at(part, begin), end - begin);
    for (int k = 0; k < size(); ++k)
      std::memcpy(bytes_at(all, k * whole + begin), pieces.data() + k * (end - begin),
                  size_t(end - begin));
  });
}

void MpiGroup::reduce_scatter(const Tensor& part, const Tensor& all) {
  come_together(call_of("reduce_scatter", all));
  const int64_t whole = bytes_of(part);
  in_pieces(whole, [&](int64_t begin, int64_t end) {
    const int64_t bytes = end - begin;
    Bytes out(size_t(bytes) * size_t(size()));
    for (int k = 0; k < size(); ++k)
      std::memcpy(out.data() + k * bytes, bytes_at(all, k * whole + begin), size_t(bytes));
    const Bytes in = exchange(out, bytes);
    reduce_in_rank_order(part.dtype(), Reduce::sum, blocks(in, size()), {bytes_at(part, begin)},
                         bytes / size_of(part.dtype()));
  });
}

void MpiGroup::all_to_all(const Tensor& out, const Tensor& in) {
  come_together(call_of("all_to_all", in));
  const int64_t whole = bytes_of(in) / size();
  in_pieces(whole, [&](int64_t begin, int64_t end) {
    const int64_t bytes = end - begin;
    Bytes mine(size_t(bytes) * size_t(size()));
    for (int k = 0; k < size(); ++k)
      std::memcpy(mine.data() + k * bytes, bytes_at(in, k * whole + begin), size_t(bytes));
    const Bytes theirs = exchange(mine, bytes);
    for (int k = 0; k < size(); ++k)
      std::memcpy(bytes_at(out, k * whole + begin), theirs.data() + k * bytes, size_t(bytes));
  });
}

std::shared_ptr<Group> MpiGroup::split(int color, int key, const std::string& name) {
  come_together(call_of("split"));
  const int mine[] = {color, key};
  const Bytes bytes = gather(reinterpret_cast<const char*>(mine), sizeof(mine));
  std::vector<int> all(size_t(2 * size())), members;
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (int k = 0; k < size(); ++k)
    if (all[size_t(2 * k)] == color) members.push_back(k);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return all[size_t(2 * a + 1)] < all[size_t(2 * b + 1)]; });
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &comm), "splitting");
  if (color < 0) return nullptr;
  std::vector<int> ranks;
  for (int k : members) ranks.push_back(world_ranks()[size_t(k)]);
  const int place = int(std::find(members.begin(), members.end(), rank()) - members.begin());
  return std::make_shared<MpiGroup>(name, place, ranks, comm, options_);
}

}  // namespace gradus::parallel

#endif
