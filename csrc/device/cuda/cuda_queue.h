// The work of a GPU in the order of the calls: a stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_kernel.h"
#include "device/cuda/driver/streams.h"
#include "device/device.h"

namespace meshfuse {

class CudaQueue final : public Queue {
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
  void wait() override;

 private:
  struct Checked {
    std::string name;  // of the step
    RefusedIndexRecord* record = nullptr;
  };

  const CudaContext& context_;
  CudaStreams& queues_;
  const CopyKernel copyKernel_;
  CudaStream stream_;
  std::string last_ = "nothing";                           // the step that was launched last
  std::vector<RefusedIndexRecord*> records_;               // pinned, free
  std::vector<Checked> checked_;                           // since the last wait
  std::vector<std::shared_ptr<const CudaKernel>> copies_;  // in flight
};

}  // namespace meshfuse
