// A program of nvFuser's multi-device tests, written anew for meshfuse, with the idioms of nvFuser's API: README.md lists all of them.
//
//   TEST_F(PortsOfSharding, Reduction) {
//     runPort([](int64_t d) {
//       return Port{[=](Fusion& f) {
//                     TensorView* in = makeContigTensor(2);
//                     f.addInput(in);
//                     f.addOutput(sum(in, {0}));
//                     bindDim(in, 0, d);
//                   },
//                   {random({d, 4})},
//                   {"all-reduce"}};
//     });
//   }
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/multidevice_test.h"

namespace meshfuse {

inline const std::vector<std::string> kNoSteps;

struct Port {
  std::function<void(Fusion&)> build;  // adds inputs and outputs; a FusionGuard is held
  std::vector<Argument> inputs;        // whole tensors
  // The kinds of steps, in order, of the rank with the most steps; nullopt: not checked.
  std::optional<std::vector<std::string>> communication = {};
  std::function<void(const FusionExecutorCache&, const std::vector<Tensor>&)> alsoExpect = {};  // on every rank
};

class PortTest : public MultiDeviceTest {
 protected:
  // Every rank runs the program twice with its shards: its part of each output is that of the reference on whole tensors.
  void runPort(const std::function<Port(int64_t ranks)>& port);  // on 2 and on 4 ranks
  void runPortOn(int ranks, const Port& port);
};

// Dim `dim` is cut over the ranks 0, .., d - 1 of a mesh: all of the dim's loops are bound, so its extent is d.
void bindDim(TensorView* tv, int64_t dim, int64_t d);
// Or in blocks, by an outer split whose outer loop is bound.
void splitDim(TensorView* tv, int64_t dim, const DeviceMesh& mesh);
void splitDim(TensorView* tv, int64_t dim, int64_t d);
// The allocation is the loop domain.
void allocateLoops(TensorView* tv);
[[nodiscard]] int64_t kernelsOf(const FusionExecutorCache& cache);

}  // namespace meshfuse
