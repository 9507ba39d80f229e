#pragma once
// Messages between threads. They match by group, source, destination and tag; those that match keep
// their order. A buffered message is a copy; a strict one is read from the sender, which waits.
#include "parallel/thread_world.h"

namespace gradus::parallel {

struct Message {
  enum class State { waits, is_read, was_read };
  Tensor data;
  Place sent;
  bool buffered = false;
  State state = State::waits;
  std::string error;  // why it could not be received
};

void send_message(ThreadWorld& world, const Address& address, const Place& place, const Tensor& x);
void receive_message(ThreadWorld& world, const Address& address, const Place& place,
                     const Tensor& x);
/// Error naming a message that nobody has received. After all ranks have returned.
void check_mail_was_read(const ThreadWorld& world);

}  // namespace gradus::parallel
