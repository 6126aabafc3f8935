// The streams of a device on which queues work, and work that comes after all of theirs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string_view>
#include <vector>

#include "device/cuda/api/driver.h"
#include "device/cuda/driver/context.h"

namespace meshfuse {

// A stream that does not wait for the default stream. The context must be current when it is made; it waits for its work when it is destroyed.
class CudaStream {
 public:
  explicit CudaStream(const CudaContext& context);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cuda::Stream get() const { return stream_; }
  // Returns when all its work has ended. DeviceError with `purpose` if a part of it failed.
  void synchronize(std::string_view purpose) const;

 private:
  const CudaContext& context_;
  cuda::Stream stream_ = nullptr;
};

enum class EventTime : uint8_t { None, Measured };

// A point in the work of a stream. The context must be current when it is made, and when its functions are called.
class CudaEvent {
 public:
  explicit CudaEvent(const CudaContext& context, EventTime time = EventTime::None);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cuda::Stream stream) const;
  // The stream is captured: each launch of the graph records the event when the work before it has ended.
  void recordInGraph(cuda::Stream captured) const;
  // Later work of the stream begins when the work before the event has ended.
  void orderBefore(cuda::Stream later) const;
  // Success if the work before the event has ended, NotReady if it has not; else its error.
  cuda::Result query() const;
  // Returns when the work before the event has ended. DeviceError with `purpose` if a part of it failed.
  void synchronize(std::string_view purpose) const;
  // Of events that measure time: from this one to another. The work before both has ended.
  std::chrono::duration<double> until(const CudaEvent& other) const;

 private:
  const CudaContext& context_;
  cuda::Event event_ = nullptr;
};

// Thread-safe. A context must be current.
class CudaStreams {
 public:
  explicit CudaStreams(const CudaContext& context) : context_(context) {}

  // While it lives, the streams are captured into a graph: orderBefore() then waits for their work before the capture, not for captured
  // work.
  class Capture {
   public:
    Capture(CudaStreams& streams, std::vector<cuda::Stream> captured);
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

   private:
    CudaStreams& streams_;
    const std::vector<cuda::Stream> captured_;
    const std::shared_lock<std::shared_mutex> lock_;
  };
  // Returns while no stream is captured, with a lock that keeps it so: for calls that a capture forbids.
  [[nodiscard]] std::unique_lock<std::shared_mutex> withoutCaptures() { return std::unique_lock(captures_); }

  void add(cuda::Stream stream);
  void remove(cuda::Stream stream);
  // Work that `later` gets from now on begins when the work that these streams have so far has ended.
  void orderBefore(cuda::Stream later);
  // Work that these streams, and streams that are added later, get from now on begins when the work that `earlier` has so far has ended.
  void orderAfter(cuda::Stream earlier);

 private:
  using Events =
      std::map<cuda::Stream,
               std::unique_ptr<const CudaEvent>>;  // the order of the addresses decides nothing that can be seen

  const CudaContext& context_;
  std::mutex mutex_;
  std::shared_mutex captures_;  // held by each capture
  std::set<cuda::Stream> captured_;
  Events own_;       // by stream
  Events arrivals_;  // by stream that is not among these: its work that comes before later work of these
};

}  // namespace meshfuse
