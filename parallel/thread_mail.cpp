#include "parallel/thread_mail.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus::parallel {
namespace {

/// Takes back a message that nobody has begun to read: its memory is about to go.
void withdraw(ThreadWorld& world, const Address& address, const std::shared_ptr<Message>& message) {
  auto& queue = world.mail[address];
  queue.erase(std::remove(queue.begin(), queue.end(), message), queue.end());
}

void check_fits(Message& message, const Place& place, const Tensor& x) {
  if (message.data.shape() == x.shape() && message.data.dtype() == x.dtype()) return;
  std::ostringstream text;
  text << "a message does not fit: " << place << ", but what came is " << message.sent;
  message.error = text.str();
  message.state = Message::State::was_read;
}

}  // namespace

void send_message(ThreadWorld& world, const Address& address, const Place& place, const Tensor& x) {
  auto message = std::make_shared<Message>();
  message->buffered = !world.options().strict_send;
  {
    const NoGrad no_grad;
    message->data = message->buffered ? clone(x) : x;
  }
  message->sent = place;
  ThreadWorld::Lock lock = world.enter(address.from, place);
  world.mail[address].push_back(message);
  world.wake({address.to});
  if (message->buffered) return;
  try {
    world.wait(
        lock, address.from, [&] { return message->state != Message::State::waits; },
        [&] { return std::vector<int>{address.to}; });
  } catch (...) {
    withdraw(world, address, message);
    throw;
  }
  world.wait_out(lock, address.from, [&] { return message->state == Message::State::was_read; });
  if (!message->error.empty()) throw Error(message->error);
}

void receive_message(ThreadWorld& world, const Address& address, const Place& place,
                     const Tensor& x) {
  ThreadWorld::Lock lock = world.enter(address.to, place);
  auto& queue = world.mail[address];
  world.wait(
      lock, address.to, [&] { return !queue.empty(); },
      [&] { return std::vector<int>{address.from}; });
  const std::shared_ptr<Message> message = queue.front();
  queue.pop_front();
  check_fits(*message, place, x);
  if (message->error.empty()) {
    message->state = Message::State::is_read;
    lock.unlock();
    if (x.numel() > 0) std::memcpy(x.raw(), message->data.raw(), size_t(bytes_of(x)));
    lock.lock();
    message->state = Message::State::was_read;
  }
  lock.unlock();
  if (!message->buffered) world.wake({address.from});
  if (!message->error.empty()) throw Error(message->error);
}

void check_mail_was_read(const ThreadWorld& world) {
  for (const auto& [address, queue] : world.mail)
    check(queue.empty(), "nobody has received what rank ", address.from,
          " sent: ", queue.empty() ? Place{} : queue.front()->sent);
}

}  // namespace gradus::parallel
