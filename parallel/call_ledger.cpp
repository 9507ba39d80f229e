#include "parallel/call_ledger.h"

namespace gradus::parallel {

std::shared_ptr<CallLedger> CallLedger::of(const std::string& id) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<CallLedger>> all;
  std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<CallLedger> ledger = all[id].lock();
  if (!ledger) all[id] = ledger = std::make_shared<CallLedger>();
  return ledger;
}

void CallLedger::enter(const std::string& group, Channel channel, int ranks, int rank,
                       const Call& call) {
  std::lock_guard lock(mutex_);
  const uint64_t number = ++numbers_[{channel, rank}];
  const auto [it, is_first] = open_.try_emplace({channel, number}, Entry{call, rank, 0});
  const Entry& first = it->second;
  check(first.call.agrees_with(call) && first.call.tag == call.tag, "the ranks of ", group,
        " do not agree in call ", number, ": rank ", first.rank, " called ", first.call, ", rank ",
        rank, " called ", call);
  if (++it->second.come == ranks) open_.erase(it);
}

}  // namespace gradus::parallel
