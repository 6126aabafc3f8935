// Work of a stream that was captured into a graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/cuda_kernel.h"
#include "device/cuda/driver/context.h"
#include "device/device.h"

namespace meshfuse {

// A launch that checks indices, and where its kernel writes the first one that it refuses.
struct CheckedLaunch {
  std::string name;                      // of the step
  RefusedIndexRecord* record = nullptr;  // pinned
};
// With a record that nobody uses. The context is current.
[[nodiscard]] CheckedLaunch makeCheckedLaunch();
void freeRecord(const CheckedLaunch& launch);

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(const CudaContext& context) : context_(context) {}
  ~CudaRecording() override;
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  // Of the stream that is captured:
  void launch(const Launch& launch, cuda::Stream stream);
  // Takes a kernel that no program owns.
  void keep(std::shared_ptr<const CudaKernel> kernel) { kept_.push_back(std::move(kernel)); }
  // Takes the captured graph. False if the driver makes no executable graph of it.
  bool finish(cuda::Graph graph);

  void relaunch(int64_t number, const Launch& launch) override;
  void end() noexcept override;
  void replay(cuda::Stream stream) const;
  const std::string& last() const { return last_; }  // the step that was recorded last
  std::vector<CheckedLaunch>& checked() { return checked_; }

 private:
  struct Node {
    const CudaKernel* kernel = nullptr;
    cuda::GraphNode node = nullptr;        // null: a grid without blocks
    RefusedIndexRecord* record = nullptr;  // null: it checks nothing
  };

  const CudaContext& context_;
  cuda::Graph graph_ = nullptr;
  cuda::GraphExec executable_ = nullptr;
  std::vector<Node> nodes_;  // by number of the launch
  std::vector<CheckedLaunch> checked_;
  std::vector<std::shared_ptr<const CudaKernel>> kept_;
  std::string last_;
};

}  // namespace meshfuse
