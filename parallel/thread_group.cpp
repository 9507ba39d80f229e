#include "parallel/thread_group.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/scope.h"
#include "parallel/rank_order.h"
#include "parallel/thread_mail.h"

namespace gradus::parallel {
namespace {

void copy(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, size_t(bytes));
}
const char* at(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
char* at(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

}  // namespace

std::vector<std::shared_ptr<Group>> ThreadGroup::make_world(
    const std::shared_ptr<ThreadWorld>& world, int ranks) {
  std::vector<int> all;
  for (int k = 0; k < ranks; ++k) all.push_back(k);
  const auto meeting = std::make_shared<Meeting>(world, "world", all);
  std::vector<std::shared_ptr<Group>> ends;
  for (int k : all) ends.push_back(std::make_shared<ThreadGroup>(meeting, k));
  return ends;
}

ThreadGroup::ThreadGroup(std::shared_ptr<Meeting> meeting, int rank)
    : Group(meeting->name, rank, meeting->world_ranks), meeting_(std::move(meeting)) {}

void ThreadGroup::together(const Call& call, Meeting::Buffers mine, const Meeting::Share& share) {
  const Scope scope(call.op);  // in a trace: with the wait for others
  meeting_->together(rank(), ++calls_, call, mine, share);
}

void ThreadGroup::barrier() {
  together(call_of("barrier"), {}, [](int) {});
}

// Each rank reduces a range of the elements, for all.
void ThreadGroup::all_reduce(const Tensor& x, Reduce how) {
  Call call = call_of("all_reduce", x);
  call.how = how;
  const int64_t n = x.numel(), element = size_of(x.dtype());
  together(call, {x.raw(), x.raw()}, [&](int k) {
    const int64_t begin = n * k / size(), end = n * (k + 1) / size();
    reduce_in_rank_order(x.dtype(), how, meeting_->inputs(begin * element),
                         meeting_->outputs(begin * element), end - begin);
  });
}

void ThreadGroup::broadcast(const Tensor& x, int root) {
  Call call = call_of("broadcast", x);
  call.root = root;
  together(call, {x.raw(), x.raw()},
           [&](int k) { copy(meeting_->output(k), meeting_->input(root), bytes_of(x)); });
}

void ThreadGroup::all_gather(const Tensor& all, const Tensor& part) {
  const int64_t bytes = bytes_of(part);
  together(call_of("all_gather", part), {part.raw(), all.raw()}, [&](int k) {
    for (int from = 0; from < size(); ++from)
      copy(at(meeting_->output(k), from * bytes), meeting_->input(from), bytes);
  });
}

void ThreadGroup::reduce_scatter(const Tensor& part, const Tensor& all) {
  const int64_t bytes = bytes_of(part);
  together(call_of("reduce_scatter", all), {all.raw(), part.raw()}, [&](int k) {
    reduce_in_rank_order(part.dtype(), Reduce::sum, meeting_->inputs(k * bytes),
                         {meeting_->output(k)}, part.numel());
  });
}

void ThreadGroup::all_to_all(const Tensor& out, const Tensor& in) {
  const int64_t bytes = bytes_of(in) / size();
  together(call_of("all_to_all", in), {in.raw(), out.raw()}, [&](int k) {
    for (int from = 0; from < size(); ++from)
      copy(at(meeting_->output(k), from * bytes), at(meeting_->input(from), k * bytes), bytes);
  });
}

void ThreadGroup::send(const Tensor& x, int to, int tag) {
  Call call = call_of("send", x);
  call.peer = world_ranks()[size_t(to)];
  call.tag = tag;
  send_message(*meeting_->world, {meeting_->id, world_rank(), call.peer, tag},
               {call, meeting_->text, ++calls_}, x);
}

void ThreadGroup::receive(const Tensor& x, int from, int tag) {
  Call call = call_of("receive", x);
  call.peer = world_ranks()[size_t(from)];
  call.tag = tag;
  receive_message(*meeting_->world, {meeting_->id, call.peer, world_rank(), tag},
                  {call, meeting_->text, ++calls_}, x);
}

namespace {

struct SplitRequest {
  int color, key;
  std::string name;
  std::shared_ptr<Meeting> group{};  // the answer, and this rank in it
  int rank = 0;
};

/// Answers all requests: one new group for each color.
void make_groups(const Meeting& m, const std::vector<SplitRequest*>& requests) {
  std::map<int, std::vector<int>> members;  // of a color: ranks of the old group
  for (int k = 0; k < m.size(); ++k) members[requests[size_t(k)]->color].push_back(k);
  for (auto& [color, ranks] : members) {
    if (color < 0) continue;
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return requests[size_t(a)]->key < requests[size_t(b)]->key;
    });
    std::vector<int> world_ranks;
    for (int k : ranks) world_ranks.push_back(m.world_ranks[size_t(k)]);
    const auto group =
        std::make_shared<Meeting>(m.world, requests[size_t(ranks[0])]->name, world_ranks);
    for (size_t i = 0; i < ranks.size(); ++i) {
      requests[size_t(ranks[i])]->group = group;
      requests[size_t(ranks[i])]->rank = int(i);
    }
  }
}

}  // namespace

std::shared_ptr<Group> ThreadGroup::split(int color, int key, const std::string& name) {
  SplitRequest mine{color, key, name};
  together(call_of("split"), {nullptr, &mine}, [&](int k) {
    if (k != 0) return;
    std::vector<SplitRequest*> requests;
    for (void* p : meeting_->outputs(0)) requests.push_back(static_cast<SplitRequest*>(p));
    make_groups(*meeting_, requests);
  });
  if (color < 0) return nullptr;
  return std::make_shared<ThreadGroup>(mine.group, mine.rank);
}

}  // namespace gradus::parallel
