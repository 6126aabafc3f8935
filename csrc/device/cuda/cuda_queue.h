// The work of a GPU in the order of the calls: a stream.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/cuda_kernel.h"
#include "device/cuda/cuda_recording.h"
#include "device/cuda/driver/stream_queue.h"
#include "device/cuda/driver/streams.h"
#include "device/device.h"

namespace meshfuse {

class CudaQueueEvent final : public Event {
 public:
  explicit CudaQueueEvent(const CudaContext& context) : event(context) {}
  const CudaEvent event;
};

class CudaQueue final : public StreamQueue {
 public:
  // The kernel of a copy between two layouts.
  using CopyKernel =
      std::function<std::shared_ptr<const CudaKernel>(const StridedElements& to, const StridedElements& from)>;

  // All outlive the queue. The context is current.
  CudaQueue(const CudaContext& context, CudaStreams& queues, CopyKernel copyKernel);
  ~CudaQueue() override;

  void launch(const Launch& launch) override;
  void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) override;
  void clear(void* memory, int64_t bytes) override;
  void copy(void* to, const void* from, std::span<const BytePiece> pieces) override;
  void copyElements(const StridedElements& to, const StridedElements& from) override;
  void prepareChecks(int64_t launches) override;
  void prepareCopy(const StridedElements& to, const StridedElements& from) override;
  void record(Event& event) override;
  void waitFor(const Event& event) override;
  bool canCapture() const override { return true; }
  std::unique_ptr<Recording> capture(const std::function<void()>& work, Queue* beside) override;
  void replay(Recording& recording) override;
  void retire(std::unique_ptr<Recording> recording) override { retired_.push_back(std::move(recording)); }
  void orderBefore(GpuStream stream) override;
  void orderAfter(GpuStream stream) override;
  void wait() override;
  void poll() override;

  cuda::Stream stream() const override { return stream_.get(); }

 private:
  // A record for the launch of a step.
  RefusedIndexRecord* recordFor(std::string_view name);
  // Clears the records of these launches; the first refusal among them is put into `record`, and its step into `name`, unless there is one.
  static void takeRefusals(std::span<const CheckedLaunch> launches, std::string& name, RefusedIndexRecord& record);

  const CudaContext& context_;
  CudaStreams& queues_;
  const CopyKernel copyKernel_;
  CudaStream stream_;
  const CudaEvent shared_;              // where this stream meets one of the caller, or that of a queue in a capture
  std::string last_ = "nothing";        // the step that was launched last
  std::vector<CheckedLaunch> checked_;  // since the last wait, then free ones
  int64_t checkedLaunches_ = 0;
  std::vector<std::unique_ptr<Recording>> retired_;        // since the last wait
  CudaRecording* recording_ = nullptr;                     // while work is recorded
  std::vector<CudaRecording*> replayed_;                   // that check indices, since the last wait
  std::vector<std::shared_ptr<const CudaKernel>> copies_;  // in flight
};

}  // namespace meshfuse
