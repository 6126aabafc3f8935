// MultiDeviceTest: a test whose body is a function of a Communicator.
//
//   class AllReduceTest : public MultiDeviceTest {};
//
//   TEST_F(AllReduceTest, SumsOverAllRanks) {
//     runOnRanks([](Communicator& comm) {
//       float x = comm.rank(), sum = 0;
//       comm.allReduce(comm.world(), &x, &sum, 1, DataType::Float, ReduceOp::Sum);
//       EXPECT_EQ(sum, comm.size() * (comm.size() - 1) / 2);
//     });
//   }
//
// Started by hand, the body runs on loopback ranks: threads. Started by a launcher (`mpirun -np 4 test_multidevice`), it runs
// on the processes of the launcher, and a test that asks for more ranks than there are is skipped. One rank's failed assertion
// fails the test on all; only rank 0 prints.
//
// Assertions work in bodies as usual; ASSERT_* leaves the body of that rank, and the others fail at their next call with it.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "multidevice/transport/communicator.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

class MultiDeviceTest : public testing::Test {
 public:
  using Body = std::function<void(Communicator&)>;

  // Whether a launcher started this process as one of several ranks.
  static bool launched();

 protected:
  MultiDeviceTest() { loopback_.deadline = std::chrono::milliseconds(60'000); }

  // On 2 and then on 4 loopback ranks, or on all ranks of the launcher.
  void runOnRanks(const Body& body);
  // On `ranks` ranks exactly: of a larger launcher's world, the first ones.
  void runOnRanks(int ranks, const Body& body);

  // For loopback runs; a test may add faults before it runs its body.
  LoopbackOptions loopback_;
};

}  // namespace meshfuse
