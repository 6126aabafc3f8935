#include "device/cuda/driver/streams.h"

#include <utility>

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

CudaEvent::CudaEvent(const CudaContext& context, EventTime time) : context_(context) {
  const unsigned flags = time == EventTime::Measured ? 0 : cuda::kEventWithoutTiming;
  succeed(loadedDriver().eventCreate(&event_, flags), "cuEventCreate", "{}", context.name());
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

void CudaEvent::recordInGraph(cuda::Stream captured) const {
  succeed(loadedDriver().eventRecordWithFlags(event_, captured, cuda::kExternalRecord), "cuEventRecordWithFlags", "{}",
          context_.name());
}

void CudaEvent::orderBefore(cuda::Stream later) const {
  succeed(loadedDriver().streamWaitEvent(later, event_, 0), "cuStreamWaitEvent", "{}", context_.name());
}

cuda::Result CudaEvent::query() const { return loadedDriver().eventQuery(event_); }

void CudaEvent::synchronize(std::string_view purpose) const {
  succeed(loadedDriver().eventSynchronize(event_), "cuEventSynchronize", "{}", purpose);
}

std::chrono::duration<double> CudaEvent::until(const CudaEvent& other) const {
  float milliseconds = 0;
  succeed(loadedDriver().eventElapsedTime(&milliseconds, event_, other.event_), "cuEventElapsedTime", "{}",
          context_.name());
  return std::chrono::duration<double, std::milli>(milliseconds);
}

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
    if (!captured_.contains(stream)) {  // else it has been recorded when the capture began
      event->record(stream);
    }
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
    if (!captured_.contains(stream)) {  // else it waits when the capture has ended
      event->orderBefore(stream);
    }
  }
}

CudaStreams::Capture::Capture(CudaStreams& streams, std::vector<cuda::Stream> captured)
    : streams_(streams), captured_(std::move(captured)), lock_(streams.captures_) {
  const std::lock_guard lock(streams_.mutex_);
  for (const cuda::Stream stream : captured_) {
    streams_.own_.at(stream)->record(stream);
    streams_.captured_.insert(stream);
  }
}

CudaStreams::Capture::~Capture() {
  const std::lock_guard lock(streams_.mutex_);
  for (const cuda::Stream stream : captured_) {
    streams_.captured_.erase(stream);
  }
  try {
    for (const auto& [earlier, event] : streams_.arrivals_) {
      for (const cuda::Stream stream : captured_) {
        event->orderBefore(stream);
      }
    }
  } catch (const DeviceError&) {  // the device is gone; the next call says so
  }
}

}  // namespace meshfuse
