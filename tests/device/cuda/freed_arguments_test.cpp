// Arguments and results whose memory has been freed on one of several ranks with GPUs: all ranks get the error.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/four_gpus.h"
#include "device/cuda/sums_beside_work.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

class GpuFreedArguments : public FourGpus {
 protected:
  // Calls before, then one in which the memory of the first argument of rank 1 has been freed; its errors, by rank. A call with other memory
  // has the right results afterwards.
  static std::array<std::string, 2> errorsAfter(int calls) {
    std::array<std::string, 2> errors;
    runLoopback(2, [&](Communicator& comm) {
      FusionExecutorCache cache(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
      std::vector<Argument> in = moved(argumentsOf(cache.fusion(), comm.rank(), 0), gpuOf(comm));
      for (int call = 0; call < calls; call++) {
        (void)cache.runFusionWithInputs(in);
      }
      const std::vector<Argument> good = in;
      if (comm.rank() == 1) {
        auto& first = std::get<Tensor>(in[0]);
        const Tensor owner = first.clone();
        first = Tensor::wrap(owner.data(), {owner.sizes().begin(), owner.sizes().end()},
                             {owner.strides().begin(), owner.strides().end()}, owner.dtype(), nullptr, gpuOf(comm));
      }
      try {
        (void)cache.runFusionWithInputs(in);
      } catch (const UserError& e) {
        errors[comm.rank()] = e.what();
      } catch (const DeviceError& e) {
        errors[comm.rank()] = std::string("DeviceError: ") + e.what();
        return;
      }
      FusionExecutorCache stepwise(sumsBesideWork(2), {.communicator = &comm, .threads = 1, .verify = Verify::Always});
      const std::vector<Tensor> results = cache.runFusionWithInputs(good);
      const std::vector<Tensor> expected = stepwise.runFusionWithInputs(good);
      for (const int64_t i : indices(results)) {
        EXPECT_EQ(results[i].toVector(), expected[i].toVector());
      }
    });
    return errors;
  }
};

TEST_F(GpuFreedArguments, AreAUserErrorOnAllRanks) {
  for (const int calls : {0, 1, 3}) {
    const std::array<std::string, 2> errors = errorsAfter(calls);
    for (const std::string& e : errors) {
      EXPECT_TRUE(e.starts_with("[run] the memory of input 0")) << "after " << calls << " calls: " << e;
      EXPECT_NE(e.find("has been freed"), std::string::npos) << e;
      EXPECT_TRUE(e.ends_with("rank 1 of 2 refuses the call with this error")) << e;
    }
  }
}

// Other mistakes of one rank that are found when the plan is known
TEST_F(GpuFreedArguments, AMissingResultIsOneToo) {
  runLoopback(2, [](Communicator& comm) {
    FusionExecutorCache cache(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> in = moved(argumentsOf(cache.fusion(), comm.rank(), 0), gpuOf(comm));
    std::vector<Tensor> out = cache.runFusionWithInputs(in);
    std::vector<Tensor> given(out.begin(), out.end() - comm.rank());
    try {
      cache.run(in, given);
      ADD_FAILURE() << "rank " << comm.rank() << " got no error";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("the fusion has 3 outputs, got 2 tensors"), std::string::npos) << e.what();
    }
    cache.run(in, out);
  });
}

}  // namespace
}  // namespace meshfuse
