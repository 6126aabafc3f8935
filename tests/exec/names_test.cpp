// Calls by name, and errors that name inputs and outputs.
#include <gtest/gtest.h>

#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

std::unique_ptr<Fusion> namedFusion() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigTensor(2);
  TensorView* w = makeContigTensor(2);
  Val* scale = IrBuilder::create<Val>(DataType::Double);
  fusion->addInput(x, "x");
  fusion->addInput(w, "weight");
  fusion->addInput(scale, "scale");
  fusion->addOutput(mul(linear(x, w), scale), "y");
  return fusion;
}

std::string refusalOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

TEST(NamedArguments, AreFoundInAnyOrder) {
  FusionExecutorCache cache(namedFusion());
  const Tensor x = randomTensor({3, 4}, DataType::Float, 1);
  const Tensor w = randomTensor({5, 4}, DataType::Float, 2);
  const std::vector<Tensor> byPosition = cache.runFusionWithInputs({x, w, 2.0});
  EXPECT_EQ(cache.run({{"scale", 2.0}, {"weight", w}, {"x", x}})[0].toVector(), byPosition[0].toVector());
}

TEST(NamedArguments, AreRefused) {
  FusionExecutorCache cache(namedFusion());
  const Tensor t = Tensor::zeros({4, 4}, DataType::Float);
  EXPECT_EQ(
      refusalOf([&] {
        (void)cache.run({{"x", t}, {"wieght", t}, {"scale", 1.0}});
      }),
      "[run] the fusion has no input named wieght; did you mean weight?; it has: input x (T0), input weight (T1), "
      "input scale (S2)");
  EXPECT_EQ(refusalOf([&] {
              (void)cache.run({{"x", t}, {"x", t}, {"scale", 1.0}});
            }),
            "[run] got two arguments for input x (T0); give one");
  EXPECT_EQ(refusalOf([&] {
              (void)cache.run({{"x", t}, {"scale", 1.0}});
            }),
            "[run] got no argument for input weight (T1); give one by this name");
  const std::string type = refusalOf([&] { (void)cache.run({{"x", t}, {"weight", 1.0}, {"scale", 1.0}}); });
  EXPECT_EQ(type, "[run] input weight (T1) is a tensor, got a number; give a tensor, see Tensor::full");
}

// The peers are told at once, and the next call is the same on all ranks.
TEST(NamedArguments, AreRefusedOnAllRanks) {
  runLoopback(2,
              [](Communicator& comm) {
                auto fusion = std::make_unique<Fusion>();
                {
                  FusionGuard guard(fusion.get());
                  const DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
                  TensorView* x = makeConcreteTensor({4, 6});
                  fusion->addInput(x, "x");
                  TensorView* y = sum(x, {0});
                  x->setDeviceMesh(mesh);
                  x->outer_split(0, 2);
                  x->axis(0)->parallelize(ParallelType::DIDx);
                  y->setDeviceMesh(mesh);
                  fusion->addOutput(y);
                }
                FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
                const Tensor x = Tensor::full({2, 6}, DataType::Float, 1.5);
                EXPECT_EQ(refusalOf([&] {
                            (void)cache.run({{comm.rank() == 1 ? "X" : "x", x}});
                          }).find("[run] the fusion has no input named X"),
                          0)
                    << comm.rank();
                EXPECT_EQ(cache.run({{"x", x}})[0].toVector(), std::vector<double>(6, 6.0));
              },
              {.deadline = std::chrono::seconds(20)});
}

TEST(NamedArguments, NeedNames) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(1);
    TensorView* y = makeContigTensor(1);
    fusion->addInput(x);
    fusion->addInput(y, "y");
    fusion->addOutput(add(x, y));
  }
  FusionExecutorCache cache(std::move(fusion));
  const Tensor t = Tensor::zeros({4}, DataType::Float);
  EXPECT_EQ(refusalOf([&] {
              (void)cache.run({{"y", t}});
            }),
            "[run] got no argument for input 0 (T0); name it in addInput, or give all arguments by position");
  EXPECT_NE(refusalOf([&] { (void)cache.run({{"", t}, {"y", t}}); }), "none");
}

// Of ranks and of outputs, through the passes: the names come from the program as it was built.
TEST(NamedArguments, ErrorsAndExplanationsHaveTheNames) {
  runLoopback(2, [](Communicator& world) {
    std::unique_ptr<Fusion> fusion = namedFusion();
    FusionGuard guard(fusion.get());
    TensorView* w = fusion->inputs()[1]->asTensor();
    for (Val* in : fusion->inputs()) {
      if (in->isTensor()) {
        in->asTensor()->setDeviceMesh(DeviceMesh::createForNumDevices(2));
      }
    }
    w->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
    FusionExecutorCache cache(std::move(fusion), {.communicator = &world});
    const Tensor x = randomTensor({3, 4}, DataType::Float, 1);
    const Tensor part = randomTensor({3, 4}, DataType::Float, 2);
    (void)cache.run({{"x", x}, {"weight", part}, {"scale", 1.0}});
    const std::string planned = cache.planText();
    EXPECT_NE(planned.find("input(weight)"), std::string::npos) << planned;
    EXPECT_NE(planned.find(" as y"), std::string::npos) << planned;
    std::vector<std::string> labels;
    for (const ExplainedTensor& t : cache.explain().tensors) {
      labels.push_back(t.label);
    }
    EXPECT_TRUE(std::ranges::find(labels, "weight") != labels.end());
    EXPECT_TRUE(std::ranges::find(labels, "y") != labels.end());
    const std::vector<Argument> inputs = {x, part, 1.0};
    std::vector<Tensor> outputs = {Tensor::zeros({1, 1}, DataType::Float)};
    const std::string refusal = refusalOf([&] { cache.run(std::span<const Argument>(inputs), outputs); });
    EXPECT_NE(refusal.find("output y (T"), std::string::npos) << refusal;
  });
}

}  // namespace
}  // namespace meshfuse
