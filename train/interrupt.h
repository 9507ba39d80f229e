#pragma once
// Ctrl-C and SIGTERM as a question that the training loop asks between two steps.

namespace gradus::train {

/// While it lives, the first SIGINT or SIGTERM only sets a flag; the second one ends the process at
/// once. The handlers found are put back at the end. Signals belong to the process: one at a time.
class Interrupt {
 public:
  /// Error when another one is alive.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;

  bool requested() const { return signal() != 0; }
  int signal() const;  // SIGINT or SIGTERM once it came, else 0
};

}  // namespace gradus::train
