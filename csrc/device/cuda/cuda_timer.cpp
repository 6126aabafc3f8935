#include "device/cuda/cuda_timer.h"

#include "device/cuda/driver/stream_queue.h"

namespace meshfuse {

namespace {

cuda::Stream streamOf(Queue& queue) { return static_cast<StreamQueue&>(queue).stream(); }

}  // namespace

CudaTimer::CudaTimer(const CudaContext& context, int64_t points)
    : context_(context), events_(points), now_(context, EventTime::Measured) {
  for (std::unique_ptr<const CudaEvent>& event : events_) {
    event = std::make_unique<const CudaEvent>(context, EventTime::Measured);
  }
}

void CudaTimer::mark(int64_t point, Queue& queue) {
  const CurrentContext current(context_);
  events_[point]->record(streamOf(queue));
}

void CudaTimer::synchronize(Queue& idle) {
  const CurrentContext current(context_);
  now_.record(streamOf(idle));
  now_.synchronize("the times of a call");
  nowOfHost_ = Clock::now();
}

Timer::Clock::time_point CudaTimer::timeOf(int64_t point) const {
  const CurrentContext current(context_);
  return nowOfHost_ - std::chrono::duration_cast<Clock::duration>(events_[point]->until(now_));
}

}  // namespace meshfuse
