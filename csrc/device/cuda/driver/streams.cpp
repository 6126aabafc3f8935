#include "device/cuda/driver/streams.h"

#include "base/error.h"
#include "device/cuda/driver/library.h"

namespace meshfuse {

CudaStream::CudaStream(const CudaContext& context) : context_(context) {
  succeed(loadedDriver().streamCreate(&stream_, cuda::kNonBlockingStream), "cuStreamCreate", "{}", context.name());
}

CudaStream::~CudaStream() {
  try {
    const CurrentContext current(context_);
    driverLibrary().streamSynchronize(stream_);  // an error has been thrown by the call or the wait before
    driverLibrary().streamDestroy(stream_);
  } catch (const DeviceError&) {  // the device is gone, and the stream with it
  }
}

void CudaStream::synchronize(std::string_view purpose) const {
  succeed(loadedDriver().streamSynchronize(stream_), "cuStreamSynchronize", "{}", purpose);
}

CudaEvent::CudaEvent(const CudaContext& context) : context_(context) {
  succeed(loadedDriver().eventCreate(&event_, cuda::kEventWithoutTiming), "cuEventCreate", "{}", context.name());
}

CudaEvent::~CudaEvent() {
  try {
    const CurrentContext current(context_);
    driverLibrary().eventDestroy(event_);
  } catch (const DeviceError&) {  // the device is gone, and the event with it
  }
}

void CudaEvent::record(cuda::Stream stream) const {
  succeed(loadedDriver().eventRecord(event_, stream), "cuEventRecord", "{}", context_.name());
}

void CudaEvent::orderBefore(cuda::Stream later) const {
  succeed(loadedDriver().streamWaitEvent(later, event_, 0), "cuStreamWaitEvent", "{}", context_.name());
}

cuda::Result CudaEvent::query() const { return loadedDriver().eventQuery(event_); }

void CudaStreams::add(cuda::Stream stream) {
  const std::lock_guard lock(mutex_);
  own_[stream] = std::make_unique<CudaEvent>(context_);
  for (const auto& [earlier, event] : arrivals_) {
    event->orderBefore(stream);
  }
}

void CudaStreams::remove(cuda::Stream stream) {
  const std::lock_guard lock(mutex_);
  own_.erase(stream);
}

void CudaStreams::orderBefore(cuda::Stream later) {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, event] : own_) {
    event->record(stream);
    event->orderBefore(later);
  }
  for (const auto& [stream, event] : arrivals_) {
    event->orderBefore(later);
  }
}

void CudaStreams::orderAfter(cuda::Stream earlier) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const CudaEvent>& event = arrivals_[earlier];
  if (event == nullptr) {
    event = std::make_unique<CudaEvent>(context_);
  }
  event->record(earlier);
  for (const auto& [stream, ofStream] : own_) {
    event->orderBefore(stream);
  }
}

}  // namespace meshfuse
