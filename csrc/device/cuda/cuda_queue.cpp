#include "device/cuda/cuda_queue.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "base/refused_index.h"
#include "device/cuda/api/routine.h"
#include "device/cuda/driver/library.h"

namespace meshfuse {

namespace {

cuda::DevicePointer pointer(const void* memory) { return std::bit_cast<cuda::DevicePointer>(memory); }

}  // namespace

CudaQueue::CudaQueue(const CudaContext& context, CudaStreams& queues, CopyKernel copyKernel)
    : context_(context), queues_(queues), copyKernel_(std::move(copyKernel)), stream_(context), shared_(context) {
  queues_.add(stream_.get());
}

CudaQueue::~CudaQueue() {
  try {
    const CurrentContext current(context_);
    driverLibrary().streamSynchronize(stream_.get());
    queues_.remove(stream_.get());
    for (const CheckedLaunch& c : checked_) {
      freeRecord(c);
    }
  } catch (const DeviceError&) {  // the device is gone, and the queue with it
  }
}

void CudaQueue::prepareChecks(int64_t launches) {
  const CurrentContext current(context_);
  while (std::ssize(checked_) < launches) {
    checked_.push_back(makeCheckedLaunch());
  }
}

void CudaQueue::prepareCopy(const StridedElements& to, const StridedElements& from) {
  if (!to.isContiguous() || !from.isContiguous()) {
    const CurrentContext current(context_);
    (void)copyKernel_(to, from);
  }
}

RefusedIndexRecord* CudaQueue::recordFor(std::string_view name) {
  prepareChecks(checkedLaunches_ + 1);
  CheckedLaunch& next = checked_[checkedLaunches_++];
  next.name = name;
  *next.record = {};
  return next.record;
}

void CudaQueue::launch(const Launch& l) {
  const CurrentContext current(context_);
  if (recording_ != nullptr) {
    return recording_->launch(l, stream_.get());
  }
  RefusedIndexRecord* const record = l.checksIndices ? recordFor(l.name) : nullptr;
  last_ = l.name;
  static_cast<const CudaKernel&>(l.kernel).launch(l.slots, record, stream_.get());
}

void CudaQueue::call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) {
  const auto& own = static_cast<const CudaRoutine&>(routine);
  const CurrentContext current(context_);
  last_ = own.name();
  own.run(operands, out, workspace, stream_.get());
}

void CudaQueue::clear(void* memory, int64_t bytes) {
  if (bytes > 0) {
    const CurrentContext current(context_);
    succeed(loadedDriver().fillAsync(pointer(memory), 0, bytes, stream_.get()), "cuMemsetD8Async", "{} bytes on {}",
            bytes, context_.name());
  }
}

void CudaQueue::copy(void* to, const void* from, std::span<const BytePiece> pieces) {
  const CurrentContext current(context_);
  for (const BytePiece& p : pieces) {
    if (p.bytes > 0) {
      succeed(
          loadedDriver().copyOnDeviceAsync(pointer(static_cast<char*>(to) + p.to),
                                           pointer(static_cast<const char*>(from) + p.from), p.bytes, stream_.get()),
          "cuMemcpyDtoDAsync", "{} bytes on {}", p.bytes, context_.name());
    }
  }
}

void CudaQueue::copyElements(const StridedElements& to, const StridedElements& from) {
  int64_t count = 1;
  for (const int64_t size : to.sizes) {
    count *= size;
  }
  if (count == 0) {
    return;
  }
  if (to.isContiguous() && from.isContiguous()) {
    const BytePiece whole{.bytes = count * dataTypeSize(to.dtype)};
    return copy(to.data, from.data, {&whole, 1});
  }
  const CurrentContext current(context_);
  const uint64_t slots[] = {std::bit_cast<uint64_t>(from.data), std::bit_cast<uint64_t>(to.data)};
  std::shared_ptr<const CudaKernel> kernel = copyKernel_(to, from);
  kernel->launch(slots, nullptr, stream_.get());
  if (recording_ != nullptr) {
    return recording_->keep(std::move(kernel));
  }
  last_ = "copy of elements";
  copies_.push_back(std::move(kernel));
}

void CudaQueue::record(Event& event) {
  const CurrentContext current(context_);
  static_cast<CudaQueueEvent&>(event).event.record(stream_.get());
}

void CudaQueue::waitFor(const Event& event) {
  const CurrentContext current(context_);
  static_cast<const CudaQueueEvent&>(event).event.orderBefore(stream_.get());
}

void CudaQueue::orderBefore(GpuStream stream) {
  const CurrentContext current(context_);
  shared_.record(stream_.get());
  shared_.orderBefore(static_cast<cuda::Stream>(stream.handle));
}

void CudaQueue::orderAfter(GpuStream stream) {
  const CurrentContext current(context_);
  shared_.record(static_cast<cuda::Stream>(stream.handle));
  shared_.orderBefore(stream_.get());
}

void CudaQueue::poll() {
  const CurrentContext current(context_);
  if (loadedDriver().streamQuery(stream_.get()) != cuda::Result::NotReady) {
    wait();
  }
}

std::unique_ptr<Recording> CudaQueue::capture(const std::function<void()>& work, Queue* beside) {
  const CurrentContext current(context_);
  const DriverLibrary& d = loadedDriver();
  std::vector<CudaQueue*> captured = {this};
  if (beside != nullptr && beside != this) {
    captured.push_back(static_cast<CudaQueue*>(beside));
  }
  const auto streamOf = [](const CudaQueue* queue) { return queue->stream(); };
  const CudaStreams::Capture capture(queues_, mapped(captured, streamOf));  // other threads leave the streams alone
  succeed(d.streamBeginCapture(stream_.get(), cuda::CaptureMode::Relaxed), "cuStreamBeginCapture", "{}",
          context_.name());
  auto made = std::make_unique<CudaRecording>(context_);
  const auto record = [&](CudaRecording* recording) {
    for (CudaQueue* const queue : captured) {
      queue->recording_ = recording;
    }
  };
  cuda::Graph graph = nullptr;
  try {
    record(made.get());
    if (captured.size() > 1) {
      shared_.record(stream_.get());
      shared_.orderBefore(captured[1]->stream());
    }
    work();
    if (captured.size() > 1) {
      captured[1]->shared_.record(captured[1]->stream());
      captured[1]->shared_.orderBefore(stream_.get());
    }
  } catch (...) {
    record(nullptr);
    if (d.streamEndCapture(stream_.get(), &graph) == cuda::Result::Success) {
      d.graphDestroy(graph);
    }
    throw;
  }
  record(nullptr);
  succeed(d.streamEndCapture(stream_.get(), &graph), "cuStreamEndCapture", "{}", context_.name());
  if (!made->finish(graph)) {
    return nullptr;
  }
  return made;
}

void CudaQueue::replay(Recording& recording) {
  const CurrentContext current(context_);
  auto& own = static_cast<CudaRecording&>(recording);
  last_ = own.last();
  own.replay(stream_.get());
  if (!own.checked().empty() && std::ranges::find(replayed_, &own) == replayed_.end()) {
    replayed_.push_back(&own);
  }
}

void CudaQueue::takeRefusals(std::span<const CheckedLaunch> launches, std::string& name, RefusedIndexRecord& record) {
  for (const CheckedLaunch& c : launches) {
    const RefusedIndexRecord found = std::exchange(*c.record, RefusedIndexRecord());
    if (found.taken != 0 && record.taken == 0) {
      name = c.name;
      record = found;
    }
  }
}

void CudaQueue::wait() {
  const CurrentContext current(context_);
  succeed(loadedDriver().streamSynchronize(stream_.get()), "cuStreamSynchronize", "{}, whose last step was {},",
          context_.name(), last_);
  copies_.clear();
  std::string name;
  RefusedIndexRecord record;
  takeRefusals(std::span(checked_).first(std::exchange(checkedLaunches_, 0)), name, record);
  for (CudaRecording* const recording : replayed_) {
    takeRefusals(recording->checked(), name, record);
  }
  replayed_.clear();
  retired_.clear();
  if (record.taken != 0) {
    throwRefusedIndex(name, record.index, record.extent);
  }
}

}  // namespace meshfuse
