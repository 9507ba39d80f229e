#pragma once
#include "core/device.h"

namespace gradus {

/// Keeps this thread's stream on `device` busy for about so long, so that the host gets ahead of the
/// device: what is queued behind then runs without waiting for its launches. Nothing on the CPU.
void delay(Device device, double milliseconds);

}  // namespace gradus
