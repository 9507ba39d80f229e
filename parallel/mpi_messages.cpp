// Messages between two processes: a header that says what comes, then the bytes in pieces, in order under one
// tag. A buffered message is a copy that leaves while its sender goes on.
#include "parallel/mpi_group.h"

#if defined(GRADUS_MPI)

#include "autograd/node.h"
#include "ops/ops.h"
#include "parallel/wait_limit.h"

namespace gradus::parallel {
namespace {

/// What comes before a message: what it is.
struct Header {
  int64_t dtype = 0, rank = 0, sizes[Shape::kMaxRank] = {};
  explicit Header(const Tensor& x) : dtype(int64_t(x.dtype())), rank(x.rank()) {
    std::copy(x.shape().begin(), x.shape().end(), sizes);
  }
  Header() = default;
  Tensor empty_like_it() const {
    Shape shape;
    for (int64_t i = 0; i < rank; ++i) shape.push_back(sizes[i]);
    return empty(shape, DType(dtype));
  }
};

struct OutgoingMessage {
  Header header;
  Tensor data;
};

/// The call of a message. What MPI cannot tell apart is an Error.
Call message_call(const char* op, const Tensor& x, int peer, int tag, int tags) {
  check(tag >= 0 && tag < tags, op, ": the tag is ", tag, ", but MPI has tags from 0 to ",
        tags - 1);
  Call call = call_of(op, x);
  call.peer = peer;
  call.tag = tag;
  return call;
}

}  // namespace

/// Requests for the pieces of a message; `start` begins to move one.
template <class Start>
MpiRequests MpiGroup::piecewise(const Tensor& x, Start&& start) const {
  MpiRequests requests;
  in_pieces(bytes_of(x), [&](int64_t begin, int64_t end) {
    requests.push_back(start(static_cast<char*>(x.raw()) + begin, int(end - begin)));
  });
  return requests;
}

void MpiGroup::send(const Tensor& x, int to, int tag) {
  call_ = message_call("send", x, world_ranks()[size_t(to)], tag, kControlTag);
  ++calls_;
  const bool strict = options_.strict_send;
  const NoGrad no_grad;
  const auto message =
      std::make_shared<OutgoingMessage>(OutgoingMessage{Header(x), strict ? x : clone(x)});
  const auto start = [&](void* p, int bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi((strict ? MPI_Issend : MPI_Isend)(p, bytes, MPI_BYTE, to, tag, comm_, &request),
              "sending");
    return request;
  };
  MpiRequests requests{start(&message->header, sizeof(Header))};
  for (MPI_Request r : piecewise(message->data, start)) requests.push_back(r);
  if (strict)
    wait(requests, std::vector<int>(requests.size(), to));
  else
    finish_later(std::move(requests), message, wait_limit(options_.timeout), waiting());
}

void MpiGroup::receive(const Tensor& x, int from, int tag) {
  call_ = message_call("receive", x, world_ranks()[size_t(from)], tag, kControlTag);
  ++calls_;
  const auto start = [&](void* p, int bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(p, bytes, MPI_BYTE, from, tag, comm_, &request), "receiving");
    return request;
  };
  Header header;
  wait({start(&header, sizeof(Header))}, {from});
  const Tensor sent = header.empty_like_it();
  const bool fits = sent.shape() == x.shape() && sent.dtype() == x.dtype();
  MpiRequests requests =
      piecewise(fits ? x : sent, start);  // what does not fit leaves the line too
  const std::vector<int> peers(requests.size(), from);
  wait(std::move(requests), peers);
  check(fits, "a message does not fit: ", call_, ", call ", calls_, " of ", name(), " of ",
        ranks_text(world_ranks()), ", but what came is ", sent.shape(), " ", sent.dtype());
}

}  // namespace gradus::parallel

#endif
