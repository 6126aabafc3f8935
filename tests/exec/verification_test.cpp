// Kernels that compute something else than they should are found, and named.
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/forwarding_device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "host/executor.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using Change = std::function<void(tile::Program&)>;

// What verification says of a program whose tile programs went through `change` on their way to the compiler.
std::string verdict(const BuildFusion& build, const std::vector<Argument>& inputs, const Change& change,
                    bool verifying = true) {
  Fusion fusion;
  {
    FusionGuard guard(&fusion);
    build(fusion);
  }
  const auto changeAll = [&](std::span<const tile::Program> programs) {
    std::vector<tile::Program> changed(programs.begin(), programs.end());
    for (tile::Program& p : changed) {
      change(p);
    }
    return changed;
  };
  const auto device = std::make_shared<ChangingDevice>(openDevice(defaultDevice(), {.threads = 1}), changeAll);
  std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  CompiledProgram compiled = compile(fusion, inputs, Agreement(*alone).call(), device);
  std::vector<Tensor> outputs;
  for (int t : compiled.host->outputs) {
    outputs.push_back(Tensor::empty(compiled.host->sizes().tensors[t].sizes, compiled.host->tensors[t].dtype));
  }
  Binding binding(compiled.host, *alone);
  try {
    binding.run(*alone, inputs, outputs, {.verify = verifying});
  } catch (const InternalError& e) {
    return e.what();
  }
  return "";
}

void replaceOp(tile::Program& program, PointOp from, PointOp to) {
  for (tile::Value& v : program.values) {
    if (v.kind == tile::ValueKind::Point && v.op == from) {
      v.op = to;
    }
  }
}

void expectNamed(const std::string& verdict, const std::vector<std::string>& phrases) {
  for (const std::string& phrase : phrases) {
    EXPECT_NE(verdict.find(phrase), std::string::npos) << "no \"" << phrase << "\" in " << verdict;
  }
}

void twoKernels(Fusion& f) {
  TensorView* x = makeContigConcreteTensor({3, 5});
  f.addInput(x);
  TensorView* y = segment_set(add(x, 1.0));
  f.addOutput(mul(y, 2.0));
}

TEST(Verification, NamesTensorPlaceValuesAndKernel) {
  Tensor x = Tensor::zeros({3, 5}, DataType::Float);
  x.set(std::vector<int64_t>{1, 2}, 0.5);
  EXPECT_EQ(verdict(twoKernels, {x}, [](tile::Program&) {}), "");
  // x + 1 as max(x, 1), right everywhere but at [1, 2]
  std::string first = verdict(twoKernels, {x}, [](tile::Program& p) { replaceOp(p, PointOp::Add, PointOp::Maximum); });
  expectNamed(first, {"[verify] T2", "computed by pointwise", "1 of 15 elements differ", "first at [1, 2]", "got 1,",
                      "expected 1.5", "kernel pointwise "});
  std::string second = verdict(twoKernels, {x}, [](tile::Program& p) { replaceOp(p, PointOp::Mul, PointOp::Sub); });
  expectNamed(second, {"[verify] T5", "15 of 15 elements differ", "first at [0, 0]", "got -1,", "expected 2"});
  EXPECT_EQ(verdict(
                twoKernels, {x}, [](tile::Program& p) { replaceOp(p, PointOp::Mul, PointOp::Sub); }, false),
            "");
}

TEST(Verification, FindsAWrongConstant) {
  Tensor x = randomTensor({3, 5}, DataType::Float, 1);
  std::string found = verdict(twoKernels, {x}, [](tile::Program& p) {
    for (tile::Value& v : p.values) {
      if (v.kind == tile::ValueKind::Const && v.constant == 2.0) {
        v.constant = 2.0 + 1.0 / 4096;
      }
    }
  });
  expectNamed(found, {"[verify] T5", "elements differ"});
}

TEST(Verification, FindsAWrongCombiner) {
  Tensor x = randomTensor({4, 40}, DataType::Float, 1, 1, 2);
  auto build = [](Fusion& f) {
    TensorView* in = makeContigConcreteTensor({4, 40});
    f.addInput(in);
    f.addOutput(sum(in, {1}));
  };
  std::string found = verdict(build, {x}, [](tile::Program& p) {
    for (tile::Value& v : p.values) {
      if (v.kind == tile::ValueKind::Reduce) {
        v.combiner = tile::Combiner::Max;
      }
    }
  });
  expectNamed(found, {"[verify] T1", "computed by reduction", "4 of 4 elements differ", "first at [0]"});
}

TEST(Verification, FindsAWrongOffset) {
  Tensor x = randomTensor({6, 8}, DataType::Float, 1);
  auto build = [](Fusion& f) {
    TensorView* in = makeContigConcreteTensor({6, 8});
    f.addInput(in);
    f.addOutput(neg(slice(in, {1, 0}, {4, 8})));
  };
  std::string found = verdict(build, {x}, [](tile::Program& p) {
    for (tile::Value& v : p.values) {
      if (v.kind == tile::ValueKind::Load) {
        v.index[0].expr += 1;
      }
    }
  });
  expectNamed(found, {"[verify] T2", "24 of 24 elements differ"});
}

TEST(Verification, EnvironmentChooses) {
  ASSERT_EQ(setenv("MESHFUSE_VERIFY", "sometimes", 1), 0);
  std::string error = errorOf([] { CheckedCache checked(twoKernels, {}); });
  EXPECT_EQ(error, "UserError: [run] MESHFUSE_VERIFY is \"sometimes\", expected off, first or always");
  for (const char* value : {"off", "first", "always"}) {
    ASSERT_EQ(setenv("MESHFUSE_VERIFY", value, 1), 0);
    CheckedCache checked(twoKernels, {});
    EXPECT_EQ(checked.call({randomTensor({3, 5}, DataType::Float, 1)}), "");
  }
  unsetenv("MESHFUSE_VERIFY");
}

// A call that a wrong index refuses leaves a cached plan that has not been verified. Its references are then those of a subtraction,
// which no right kernel agrees with.
TEST(Verification, IsOfNoCallOfTheFirstOrOfEach) {
  auto fusionWith = [](PointOp op) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({3, 5});
    TensorView* at = makeContigConcreteTensor({2}, DataType::Int);
    fusion->addInput(x);
    fusion->addInput(at);
    TensorView* taken = index_select(x, 0, at);
    fusion->addOutput(op == PointOp::Add ? add(taken, 1.0) : sub(taken, 1.0));
    return fusion;
  };
  const Tensor x = randomTensor({3, 5}, DataType::Float, 1);
  auto indices = [](int64_t last) {
    Tensor at = Tensor::zeros({2}, DataType::Int);
    at.set(std::vector<int64_t>{1}, static_cast<double>(last));
    return at;
  };
  FusionExecutorCache other(fusionWith(PointOp::Sub), {.verify = Verify::Off});
  (void)other.runFusionWithInputs({x, indices(2)});

  struct Case {
    const char* chosen;
    bool firstIsVerified, secondIsVerified;
  };
  for (const Case& c : {Case{"off", false, false}, {"first", true, false}, {"always", true, true}}) {
    SCOPED_TRACE(c.chosen);
    ASSERT_EQ(setenv("MESHFUSE_VERIFY", c.chosen, 1), 0);
    FusionExecutorCache cache(fusionWith(PointOp::Add));
    unsetenv("MESHFUSE_VERIFY");
    auto call = [&](int64_t last) { return errorOf([&] { (void)cache.runFusionWithInputs({x, indices(last)}); }); };
    ASSERT_TRUE(call(7).starts_with("UserError"));
    auto& steps = const_cast<HostProgram&>(*cache.hostProgram()).steps;
    ASSERT_EQ(steps.size(), 1u);
    const StepReference right = steps[0].reference;
    auto callWithAWrongReference = [&] {
      steps[0].reference = other.hostProgram()->steps[0].reference;
      const std::string error = call(2);
      steps[0].reference = right;
      return error;
    };
    auto isFound = [&] { return callWithAWrongReference().find("[verify] T") != std::string::npos; };
    EXPECT_EQ(isFound(), c.firstIsVerified);
    EXPECT_EQ(call(2), "");
    EXPECT_EQ(isFound(), c.secondIsVerified);
  }
}

}  // namespace

}  // namespace meshfuse
