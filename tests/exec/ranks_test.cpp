// Calls on several ranks where one rank's call differs: every rank gets an error within the deadline.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "device/forwarding_device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "host/executor.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using std::chrono::milliseconds;

// x [8, 6] cut over dim 0 -> sum over it, so an all-reduce; and the sum over dim 1, cut.
std::unique_ptr<Fusion> shardedSum(int64_t ranks, double increment = 1) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigTensor(2);
  fusion->addInput(x);
  TensorView* y = sum(add(x, increment), {0});
  fusion->addOutput(y);
  fusion->addOutput(sum(x, {1}));
  DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  x->setDeviceMesh(mesh);
  x->outer_split(0, ranks);
  x->axis(0)->parallelize(ParallelType::DIDx);
  y->setDeviceMesh(mesh);
  return fusion;
}

constexpr milliseconds kDeadline{60'000};  // a starved rank of a crowded machine does not miss it

// What each rank's body throws. Not that a deadline has expired, but the one given: ranks are told at once.
std::vector<std::string> errorsOfRanks(int ranks, const std::function<void(Communicator&)>& body,
                                       LoopbackOptions options = {.deadline = kDeadline}) {
  std::vector<std::string> errors(ranks);
  std::string thrown = errorOf([&] {
    runLoopback(
        ranks,
        [&](Communicator& comm) {
          std::string& mine = errors[comm.rank()];
          try {
            body(comm);
          } catch (const UserError& e) {
            mine = std::string("UserError: ") + e.what();
            throw;
          } catch (const DeviceError& e) {
            mine = std::string("DeviceError: ") + e.what();
            throw;
          }
        },
        options);
  });
  for (const std::string& e : errors) {
    EXPECT_EQ(e.find(fmt::format("deadline of {} ms", kDeadline.count())), std::string::npos) << e;
  }
  return errors;
}

bool has(const std::string& text, const std::string& phrase) { return text.find(phrase) != std::string::npos; }

// What all ranks are told alike.
const std::string& oneError(const std::vector<std::string>& errors) {
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
  }
  return errors[0];
}

Tensor shard(int64_t rows, double value = 1) { return Tensor::full({rows, 6}, DataType::Float, value); }

// 1.0 and 1 are the same number to a Double input: a rank that gives the other kind compiles for it, but meets nobody.
TEST(OneRank, GivesANumberAsAnInteger) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(2);
      Val* scale = IrBuilder::create<Val>(DataType::Double);
      fusion->addInput(x);
      fusion->addInput(scale);
      TensorView* y = sum(mul(x, scale), {0});
      fusion->addOutput(y);
      DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
      x->setDeviceMesh(mesh);
      x->outer_split(0, 2);
      x->axis(0)->parallelize(ParallelType::DIDx);
      y->setDeviceMesh(mesh);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    for (bool integer : {false, true, false}) {
      Argument two = integer && comm.rank() == 1 ? Argument(int64_t{2}) : Argument(2.0);
      EXPECT_EQ(cache.runFusionWithInputs({shard(4), two})[0].at({5}), 16);
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(OneRank, PassesAShardOfAnotherNumberOfDims) {
  for (const int ranks : {2, 4}) {
    const std::string e = oneError(errorsOfRanks(ranks, [&](Communicator& comm) {
      FusionExecutorCache cache(shardedSum(ranks), {.communicator = &comm});
      (void)cache.runFusionWithInputs({comm.rank() == 1 ? Tensor::zeros({4}, DataType::Float) : shard(4)});
    }));
    EXPECT_TRUE(e.starts_with("UserError: [run] input 0 (T0") && has(e, "has 2 dims, got 1 with sizes [4]")) << e;
    EXPECT_TRUE(e.ends_with(ranks == 2 ? "; ranks [1] of 2 refuse the call with this error"
                                       : "; ranks [1] of 4 refuse the call with this error"))
        << e;
  }
}

// Two ranks have other complaints: all hear that of the first.
TEST(SomeRanks, PassArgumentsOfOtherKinds) {
  const std::string e = oneError(errorsOfRanks(4, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(4), {.communicator = &comm});
    const Tensor x = comm.rank() == 1   ? Tensor::zeros({2, 6}, DataType::Double)
                     : comm.rank() == 2 ? Tensor::zeros({2, 6, 1}, DataType::Float)
                                        : shard(2);
    (void)cache.runFusionWithInputs({x});
  }));
  EXPECT_TRUE(e.starts_with("UserError: [run] input 0 (T0") && has(e, "Double")) << e;
  EXPECT_TRUE(e.ends_with("; ranks [1] of 4 refuse the call with this error")) << e;
}

// Whole on every rank, and of another size on one.
TEST(OneRank, PassesAWholeOfAnotherSize) {
  const std::string e = oneError(errorsOfRanks(4, [](Communicator& comm) {
    auto fusion = shardedSum(4);
    {
      FusionGuard guard(fusion.get());
      TensorView* w = makeContigTensor(2);
      fusion->addInput(w);
      fusion->addOutput(neg(w));
      w->setDeviceMesh(DeviceMesh::createForNumDevices(4));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(2), Tensor::zeros({5, comm.rank() == 2 ? 7 : 6}, DataType::Float)});
  }));
  EXPECT_TRUE(e.starts_with("UserError: [agreement] the plans of ranks [2] differ from that of rank 0")) << e;
  EXPECT_TRUE(has(e, "rank 0 has \"dim 1 of input 1 (T") && has(e, "is 6\", rank 2 has \"dim 1 of input 1 (T") &&
              has(e, "is 7\""))
      << e;
}

TEST(OneRank, PassesAShardOfAnotherSize) {
  const std::string e = oneError(errorsOfRanks(4, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(4), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(comm.rank() == 2 ? 3 : 2)});
  }));
  EXPECT_TRUE(has(e, "the shards of ranks [2] differ in size from that of rank 0")) << e;
  EXPECT_TRUE(has(e, "dim 0 of input 0 (T0") && has(e, "has local size 2 and global size 8") &&
              has(e, "has local size 3 and global size 12"))
      << e;
  EXPECT_TRUE(e.starts_with("UserError: [run]") && has(e, "Tensor::withGlobalShape")) << e;
}

// Parts of an outer split are blocks of one size, the last ones smaller or empty; other parts are stated by `partition`.
TEST(SomeRanks, PassPartsOfTwoThreeFourAndFiveRows) {
  for (const bool isKnown : {false, true}) {
    const std::string e = oneError(errorsOfRanks(4, [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      {
        FusionGuard guard(fusion.get());
        TensorView* x = isKnown ? makeContigConcreteTensor({14, 6}) : makeContigTensor(2);
        fusion->addInput(x);
        fusion->addOutput(sum(x, {0}));
        x->setDeviceMesh(DeviceMesh::createForNumDevices(4));
        x->outer_split(0, 4);
        x->axis(0)->parallelize(ParallelType::DIDx);
      }
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
      (void)cache.runFusionWithInputs({shard(2 + comm.rank())});
    }));
    EXPECT_TRUE(e.starts_with("UserError: [run]")) << e;
    EXPECT_TRUE(has(e, isKnown ? "has local sizes [4, 6] on this rank, got [2, 6], which differ in dim 0"
                               : "the shards of ranks [1, 2, 3] differ in size from that of rank 0"))
        << e;
  }
}

TEST(OneRank, PassesAnotherTypeInALaterCall) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(2), {.communicator = &comm});
    for (int call = 0; call < 3; call++) {
      Tensor x = shard(4);
      (void)cache.runFusionWithInputs({call == 2 && comm.rank() == 0 ? x.to(DataType::Double) : x});
    }
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError: [run] input 0") && has(e, "Double") && has(e, "rank 0 refuses the call")) << e;
}

std::vector<Tensor> supplied(int64_t columns) {
  return {Tensor::empty({columns}, DataType::Float), Tensor::empty({2}, DataType::Float)};
}

void callWith(FusionExecutorCache& cache, const Tensor& x, std::vector<Tensor> outputs) {
  const std::vector<Argument> inputs{x};
  cache.run(std::span<const Argument>(inputs), outputs);
}

// Warm plans of both sizes are there: nobody compiles, and the counts of the collectives are the same.
TEST(OneRank, PassesAnotherKnownSize) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(2), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(2)});
    (void)cache.runFusionWithInputs({shard(4)});
    (void)cache.runFusionWithInputs({shard(comm.rank() == 1 ? 2 : 4)});
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError: [run] ranks 0 and 1 call one program with different arguments: input 0 (T0"))
      << e;
  EXPECT_TRUE(has(e,
                  "is Float [4, 6] of a global [8, 6] on rank 0 and Float [2, 6] of a global [4, 6] on rank 1, "
                  "they differ in dim 0"))
      << e;
  EXPECT_TRUE(has(e, "pass every rank its shard of one global tensor, [8, 6] or [4, 6]") && has(e, "at step")) << e;
}

TEST(OneRank, CallsAnotherKnownProgram) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    FusionExecutorCache one(shardedSum(2, 1), {.communicator = &comm});
    FusionExecutorCache two(shardedSum(2, 2), {.communicator = &comm});
    (void)one.runFusionWithInputs({shard(2)});
    (void)two.runFusionWithInputs({shard(2)});
    (void)(comm.rank() == 1 ? one : two).runFusionWithInputs({shard(2)});
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError: [run] ranks 0 and 1 call different programs")) << e;
  EXPECT_TRUE(has(e, "rank 0 has \"") && has(e, "add(T0, 2.0)") && has(e, "add(T0, 1.0)")) << e;
}

TEST(OneRank, RefusesALaterCall) {
  for (bool output : {false, true}) {
    std::vector<std::string> errors = errorsOfRanks(2, [&](Communicator& comm) {
      FusionExecutorCache cache(shardedSum(2), {.communicator = &comm});
      (void)cache.runFusionWithInputs({shard(2)});
      const bool bad = comm.rank() == 1;
      callWith(cache, bad && !output ? Tensor() : shard(2), supplied(bad && output ? 7 : 6));
    });
    const std::string why = output ? "[run] output 0 (T3) has type" : "[run] input 0";
    const std::string& e = oneError(errors);
    EXPECT_TRUE(e.starts_with("UserError: " + why) && has(e, "rank 1 refuses the call")) << e;
  }
}

// A program that does not communicate: the peers neither wait nor notice.
TEST(OneRank, RefusesACallOfALocalProgram) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(2);
      fusion->addInput(x);
      fusion->addOutput(neg(x));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(2)});
    if (comm.rank() == 1) {
      EXPECT_TRUE(errorOf([&] { (void)cache.runFusionWithInputs({}); }).starts_with("UserError: [run]"));
    }
    EXPECT_EQ(cache.runFusionWithInputs({shard(comm.rank() + 2)})[0].at({1, 1}), -1) << "sizes of its own";
    comm.barrier(comm.world());
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(OneRank, HasAnotherProgram) {
  const std::string e = oneError(errorsOfRanks(4, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(4, comm.rank() == 3 ? 2 : 1), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(2)});
  }));
  EXPECT_TRUE(e.starts_with("UserError: [agreement]")) << e;
  EXPECT_TRUE(has(e, "ranks [3]") && has(e, "add(T0, 1") && has(e, "add(T0, 2")) << e;
}

TEST(OneRank, NeverCalls) {
  std::vector<std::string> errors = errorsOfRanks(4, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(4), {.communicator = &comm});
    if (comm.rank() != 1) {
      (void)cache.runFusionWithInputs({shard(2)});
    }
  });
  EXPECT_EQ(errors[1], "");
  for (size_t r : {0, 2, 3}) {
    EXPECT_TRUE(errors[r].starts_with("DeviceError:") && has(errors[r], "rank 1")) << errors[r];
  }
}

TEST(OneRank, StopsCalling) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(2), {.communicator = &comm});
    for (int call = 0; call < (comm.rank() == 0 ? 2 : 5); call++) {
      (void)cache.runFusionWithInputs({shard(4)});
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(errors[1].starts_with("DeviceError:") && has(errors[1], "rank 0")) << errors[1];
}

TEST(OneRank, IsStuck) {
  std::atomic<bool> failed = false;
  std::vector<std::string> errors = errorsOfRanks(2,
                                                  [&](Communicator& comm) {
                                                    FusionExecutorCache cache(shardedSum(2), {.communicator = &comm});
                                                    (void)cache.runFusionWithInputs({shard(4)});
                                                    try {
                                                      while (comm.rank() == 0 && !failed) {
                                                        std::this_thread::sleep_for(milliseconds(1));
                                                      }
                                                      (void)cache.runFusionWithInputs({shard(4)});
                                                    } catch (const Error&) {
                                                      failed = true;
                                                      throw;
                                                    }
                                                  },
                                                  {.deadline = milliseconds(2000)});
  EXPECT_TRUE(errors[1].starts_with("DeviceError:") && has(errors[1], "rank 0")) << errors[1];
  EXPECT_TRUE(has(errors[1], "all-reduce")) << errors[1];
}

// One that compiles is not stuck, however long that takes.
TEST(OneRank, CompilesForLongerThanTheDeadline) {
  const LoopbackOptions options{.deadline = milliseconds(1000)};
  runLoopback(
      2,
      [](Communicator& comm) {
        const auto slowly = [&](std::span<const tile::Program> programs) {
          std::this_thread::sleep_for(milliseconds(comm.rank() == 1 ? 3000 : 0));
          return std::vector<tile::Program>(programs.begin(), programs.end());
        };
        const auto slow = std::make_shared<ChangingDevice>(openDevice(defaultDevice(), {.threads = 1}), slowly);
        const std::unique_ptr<Fusion> fusion = shardedSum(2);
        const std::vector<Argument> inputs{shard(2)};
        const CompiledProgram compiled = compile(*fusion, inputs, Agreement(comm).call(), slow);
        std::vector<Tensor> outputs = supplied(6);
        Binding(compiled.host, comm).run(comm, inputs, outputs);
        EXPECT_EQ(outputs[0].at({0}), 8);
      },
      options);
}

TEST(OneRank, FailsInTheMiddle) {
  for (int64_t call : {0, 1, 2, 3}) {
    std::vector<std::string> errors = errorsOfRanks(
        4,
        [](Communicator& comm) {
          FusionExecutorCache cache(shardedSum(4), {.communicator = &comm});
          for (int k = 0; k < 4; k++) {
            (void)cache.runFusionWithInputs({shard(2)});
          }
        },
        {.deadline = kDeadline, .faults = {{.kind = LoopbackFault::Kind::Throw, .rank = 2, .call = call}}});
    EXPECT_TRUE(errors[2].starts_with("UserError:")) << call << " " << errors[2];
    for (size_t r : {0, 1, 3}) {
      if (call == 0) {  // where plans are compared: nothing tells the others
        EXPECT_TRUE(errors[r].starts_with("DeviceError:") && has(errors[r], "rank 2")) << call << " " << errors[r];
      } else {  // a user's error, as far as the others know
        EXPECT_EQ(errors[r], errors[2]) << call;
        EXPECT_TRUE(has(errors[r], "rank 2 refuses the call")) << call << " " << errors[r];
      }
    }
  }
}

TEST(AllRanks, BindAnAxisTwice) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor({4, 6});
      fusion->addInput(x);
      fusion->addOutput(neg(x));
      x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
      x->outer_split(0, 2);
      x->outer_split(2, 2);
      x->axis(0)->parallelize(ParallelType::DIDx);
      x->axis(2)->parallelize(ParallelType::DIDx);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    (void)cache.runFusionWithInputs({Tensor::zeros({2, 3}, DataType::Float)});
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError:") &&
              has(e, "T0: DIDx, axis x of {x: 2}[0, 1], is bound to two loop dims, 0 and 2"))
      << e;
  EXPECT_TRUE(has(e, "leave one of them serial, or give the mesh one more axis")) << e;
}

TEST(AllRanks, HaveAMeshLargerThanTheWorld) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(4), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(2)});
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError: [run] the mesh of T0 contains rank 2, but there are 2 ranks")) << e;
  std::string alone = errorOf([] {
    std::unique_ptr<Communicator> self = makeSelfCommunicator();
    FusionExecutorCache cache(shardedSum(2), {.communicator = self.get()});
    (void)cache.runFusionWithInputs({shard(4)});
  });
  EXPECT_TRUE(alone.starts_with("UserError:") && has(alone, "mesh")) << alone;
}

// Five rows on two ranks are fine, but nothing says that they are five.
TEST(AllRanks, CutADimOfUnknownSizeUnevenly) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(2);
      fusion->addInput(x);
      fusion->addOutput(neg(x));
      x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
      x->outer_split(0, 2);
      x->axis(0)->parallelize(ParallelType::DIDx);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(3 - comm.rank())});
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError:") && has(e, "dim 0 of input 0 (T0") && has(e, "Tensor::withGlobalShape")) << e;
}

TEST(AllRanks, RefuseALaterCallAndLoseNothing) {
  for (bool output : {false, true}) {
    std::vector<std::string> errors = errorsOfRanks(4, [&](Communicator& comm) {
      FusionExecutorCache cache(shardedSum(4), {.communicator = &comm});
      (void)cache.runFusionWithInputs({shard(2)});
      EXPECT_TRUE(errorOf([&] {
                    callWith(cache, output ? shard(2) : Tensor(), supplied(output ? 7 : 6));
                  }).starts_with(output ? "UserError: [run] output 0" : "UserError: [run] input 0"));
      EXPECT_EQ(cache.runFusionWithInputs({shard(2)})[0].at({5}), 16);
    });
    EXPECT_EQ(errors, std::vector<std::string>(4));
  }
}

// Ranks that hold nothing of an input are told how large it is.
TEST(AllRanks, HaveAMeshOfSomeOfThem) {
  std::vector<std::string> errors = errorsOfRanks(4, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(2);
      fusion->addInput(x);
      TensorView* y = sum(x, {0});
      fusion->addOutput(y);
      DeviceMesh mesh = DeviceMesh::create({{"x", 2}}, {3, 1});
      x->setDeviceMesh(mesh);
      x->outer_split(0, 2);
      x->axis(0)->parallelize(mesh.axis("x"));
      y->setDeviceMesh(mesh);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(2)});
  });
  const std::string& e = oneError(errors);
  EXPECT_TRUE(e.starts_with("UserError: [run] input 0 (T0) is on mesh {x: 2}[3, 1], which does not contain rank 0") &&
              has(e, "Tensor::withGlobalShape"))
      << e;
  EXPECT_TRUE(e.ends_with("; ranks [0] of 4 refuse the call with this error")) << e;
}

TEST(EachRank, MayLayOutItsShardAsItLikes) {
  Tensor global = randomTensor({8, 6}, DataType::Float, 3, -2, 2);
  std::vector<BoundedTensor> expected =
      interpretWithBounds(*shardedSum(2), std::vector<Argument>{global}, {.partials = 2});
  runLoopback(2,
              [&](Communicator& comm) {
                FusionExecutorCache cache(shardedSum(2),
                                          {.communicator = &comm, .maxPlans = 2, .verify = Verify::Always});
                Tensor mine = global.slice(0, comm.rank() * 4, comm.rank() * 4 + 4).clone();
                Tensor buffer = Tensor::zeros({200}, DataType::Float);
                for (int call = 0; call < 8; call++) {
                  Tensor x = mine;
                  if ((call + comm.rank()) % 3 == 1) {
                    x = buffer.asStrided({4, 6}, {1, 4}, call);
                    x.copyFrom(mine);
                  } else if ((call * (comm.rank() + 1)) % 4 == 2) {
                    x = buffer.asStrided({4, 6}, {13, 2}, 3);
                    x.copyFrom(mine);
                  }
                  std::vector<Tensor> out = cache.runFusionWithInputs({x});
                  EXPECT_EQ(compare(out[0], expected[0]).value_or(""), "") << "call " << call;
                  if (call == 4) {  // another shape in between
                    (void)cache.runFusionWithInputs({shard(2)});
                    (void)cache.runFusionWithInputs({shard(3)});
                  }
                }
              },
              {.deadline = kDeadline});
}

TEST(SpecialValuesOnRanks, ReachEveryRank) {
  for (int64_t ranks : {2, 4}) {
    Tensor global = randomTensor({8, 6}, DataType::Float, 3, -2, 2);
    global.set(std::vector<int64_t>{5, 1}, kNan);
    global.set(std::vector<int64_t>{0, 2}, kInf);
    for (int64_t i = 0; i < 8; i++) {
      global.set(std::vector<int64_t>{i, 3}, -kInf);
      global.set(std::vector<int64_t>{i, 4}, i == 2 ? -0.0 : 0.0);
    }
    runLoopback(static_cast<int>(ranks),
                [&](Communicator& comm) {
                  auto fusion = std::make_unique<Fusion>();
                  DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
                  TensorView* x = nullptr;
                  {
                    FusionGuard guard(fusion.get());
                    x = makeContigConcreteTensor({8, 6});
                    fusion->addInput(x);
                    x->setDeviceMesh(mesh);
                    x->outer_split(0, ranks);
                    x->axis(0)->parallelize(ParallelType::DIDx);
                    for (TensorView* y : {max(x, {0}), min(x, {0}), sum(x, {0}), softmax(x, 0)}) {
                      fusion->addOutput(y);
                      y->setDeviceMesh(mesh);
                    }
                  }
                  std::vector<BoundedTensor> expected =
                      interpretWithBounds(*fusion, std::vector<Argument>{global}, {.partials = ranks});
                  Tensor mine = shardTensor(global, x, comm.rank());
                  FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
                  std::vector<Tensor> out = cache.runFusionWithInputs({mine});
                  for (size_t i = 0; i < out.size(); i++) {
                    EXPECT_EQ(compare(out[i], expected[i]).value_or(""), "") << "output " << i;
                  }
                },
                {.deadline = kDeadline});
  }
}

TEST(EmptyOnRanks, ACutDimWithoutElementsGivesTheIdentity) {
  std::vector<std::string> errors = errorsOfRanks(2, [](Communicator& comm) {
    FusionExecutorCache cache(shardedSum(2), {.communicator = &comm});
    (void)cache.runFusionWithInputs({shard(4)});
    EXPECT_EQ(cache.runFusionWithInputs({shard(0)})[0].toVector(), std::vector<double>(6, 0.0));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(EmptyOnRanks, ShardsWithoutColumns) {
  runLoopback(2,
              [&](Communicator& comm) {
                FusionExecutorCache cache(shardedSum(2), {.communicator = &comm, .verify = Verify::Always});
                for (int64_t columns : {0, 3, 0}) {
                  std::vector<Tensor> out = cache.runFusionWithInputs({Tensor::full({4, columns}, DataType::Float, 1)});
                  EXPECT_EQ(out[0].toVector(), std::vector<double>(columns, 16.0));
                  EXPECT_EQ(out[1].toVector(), std::vector<double>(4, static_cast<double>(columns)));
                }
              },
              {.deadline = kDeadline});
}

}  // namespace

}  // namespace meshfuse
