// The times of points in the work of a GPU's streams, by events.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/driver/streams.h"
#include "device/device.h"

namespace meshfuse {

// The driver tells the time between two events, to about 0.5 us, and not the time of one. So synchronize() records an event on an idle stream
// and waits for it: the host's time after the wait is that of the event, a little too late, and all other times follow from it.
class CudaTimer final : public Timer {
 public:
  // Of points 0, 1, ... The context is current, and outlives the timer.
  CudaTimer(const CudaContext& context, int64_t points);

  void mark(int64_t point, Queue& queue) override;
  void synchronize(Queue& idle) override;
  Clock::time_point timeOf(int64_t point) const override;

 private:
  const CudaContext& context_;
  std::vector<std::unique_ptr<const CudaEvent>> events_;  // by point
  const CudaEvent now_;
  Clock::time_point nowOfHost_;
};

}  // namespace meshfuse
