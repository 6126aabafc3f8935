// Calls that cannot be right: what is said, and that it is said before anything runs.
#include <gtest/gtest.h>

#include <functional>

#include "exec/explain.h"
#include "ir/text.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

Tensor blank(std::vector<int64_t> sizes, DataType type = DataType::Float) {
  return Tensor::zeros(std::move(sizes), type);
}

void expectError(FusionExecutorCache& cache, const std::vector<Argument>& inputs,
                 const std::vector<std::string>& phrases) {
  std::string error = errorOf([&] { (void)cache.runFusionWithInputs(inputs); });
  EXPECT_TRUE(error.starts_with("UserError: [")) << error;
  for (const std::string& phrase : phrases) {
    EXPECT_NE(error.find(phrase), std::string::npos) << "no \"" << phrase << "\" in " << error;
  }
}

class BadInput : public ::testing::Test {
 protected:
  // w [4, i0] is updated in place: a call that fails must leave it as it was.
  CheckedCache checked{[](Fusion& f) {
    TensorView* w = makeConcreteTensor({4, -1});
    Val* s = IrBuilder::create<Val>(DataType::Double);
    Val* n = IrBuilder::create<Val>(DataType::Int);
    Val* b = IrBuilder::create<Val>(DataType::Bool);
    TensorView* y = makeSymbolicTensor(1, DataType::Int);
    for (Val* v : std::initializer_list<Val*>{w, s, n, b, y}) {
      f.addInput(v);
    }
    TensorView* next = add(mul(w, s), n);
    f.addOutput(next);
    f.aliasOutputToInput(next, w);
    f.addOutput(add(y, 1));
    f.addOutput(full({2}, b, DataType::Bool));
  }};
  Tensor w = Tensor::full({4, 3}, DataType::Float, 1);
  std::vector<Argument> good = {w, 2.0, int64_t{1}, true, blank({5}, DataType::Int)};

  void expectRefused(size_t position, const Argument& wrong, const std::vector<std::string>& phrases) {
    std::vector<Argument> inputs = good;
    inputs[position] = wrong;
    expectError(checked.cache(), inputs, phrases);
    EXPECT_EQ(w.toVector(), std::vector<double>(12, 1.0)) << "something ran";
  }
};

TEST_F(BadInput, Number) {
  expectError(checked.cache(), {}, {"[run]", "5 inputs", "got 0"});
  expectError(checked.cache(), {w, 1.0, int64_t{1}, true}, {"[run]", "5 inputs", "got 4"});
}

TEST_F(BadInput, Kinds) {
  expectRefused(0, 1.0, {"[run] input 0 (T0)", "is a tensor", "got a number"});
  expectRefused(1, blank({}), {"[run] input 1 (S1)", "Double scalar", "got the tensor Float[]"});
  expectRefused(1, true, {"[run] input 1 (S1)", "Double scalar"});
  expectRefused(2, 1.0, {"[run] input 2", "Int scalar"});
  expectRefused(2, false, {"[run] input 2", "Int scalar"});
  expectRefused(3, int64_t{1}, {"[run] input 3", "Bool scalar"});
  expectRefused(4, Tensor(), {"[run] input 4", "undefined"});
}

TEST_F(BadInput, TypesRanksAndSizes) {
  expectRefused(0, blank({4, 3}, DataType::Double), {"[run] input 0 (T0)", "has type Float", "got Double"});
  expectRefused(4, blank({4}, DataType::Int32), {"[run] input 4", "has type Int", "got Int32"});
  expectRefused(0, blank({4}), {"[run] input 0 (T0)", "2 dims", "got 1", "[4]"});
  expectRefused(0, blank({4, 3, 1}), {"[run] input 0 (T0)", "2 dims", "got 3"});
  expectRefused(0, blank({5, 3}), {"input 0 (T0)", "dim 0", "is 5, expected 4"});
  expectRefused(0, blank({1, 3}), {"input 0 (T0)", "dim 0", "is 1, expected 4"});
}

TEST_F(BadInput, TheSameAfterGoodCalls) {
  EXPECT_EQ(checked.call(good), "");
  EXPECT_EQ(checked.call(good), "");
  w.copyFrom(Tensor::full({4, 3}, DataType::Float, 1));
  expectRefused(0, blank({5, 3}), {"input 0 (T0)", "is 5, expected 4"});
  expectRefused(1, true, {"[run] input 1 (S1)"});
  EXPECT_EQ(checked.call(good), "");
  EXPECT_EQ(checked.cache().plansCompiled(), 1);
}

// The error is of the user: no pass is named.
void expectRefusedProgram(const std::string& line, const std::vector<std::string>& phrases) {
  const std::string text =
      "fusion {\n  mesh M0 {x: 2} [0, 1]\n  T0 = input() : Float[8] contiguity[t] mesh M0\n  T1 = " + line +
      "\n  output T1\n}\n";
  runLoopback(2, [&](Communicator& comm) {
    FusionExecutorCache cache(parseFusion(text), {.communicator = &comm});
    for (int call = 0; call < 2; call++) {
      expectError(cache, {blank({8})}, phrases);
    }
  });
}

TEST(BadPrograms, AreRefusedBeforeTheFirstPass) {
  expectRefusedProgram("exp(T0) : Float[8] mesh M0 outer_split(0, k) parallelize(0, DIDx)",
                       {"[run] loop DIDx{k} of T1", "depends on k, which occurs in no input"});
  expectRefusedProgram("exp(T0) : Float[8] mesh M0 outer_split(0, k) outer_split(1, 2) parallelize(1, DIDx)",
                       {"[run] loop DIDx{2} of T1", "depends on k, which occurs in no input"});
  expectRefusedProgram("neg(T0) : Double[8] mesh M0", {"[run] the fusion is not valid:", "T1"});
  expectRefusedProgram(
      "reduce(T0, op=sum) : Float[r{8}] mesh M0 outer_split(0, 2) parallelize(0, DIDx) parallelize(1, DIDx)",
      {"[run] the fusion is not valid:", "T1"});
}

// An axis of one device owns nothing, so its loop may have any size; and loops may be split and merged any number of times.
TEST(GoodPrograms, RunWithLoopsOfAnySizeAndManyTransforms) {
  std::string transforms = "outer_split(0, 1)";
  for (int k = 0; k < 40; k++) {
    transforms += " merge(0) outer_split(0, 1)";
  }
  for (const std::string& loops : {std::string("outer_split(0, k)"), transforms}) {
    FusionExecutorCache cache(
        parseFusion("fusion {\n  mesh M0 {x: 1} [0]\n  T0 = input() : Float[8]\n  T1 = neg(T0) : Float[8] mesh M0 " +
                    loops + " parallelize(0, DIDx)\n  output T1\n}\n"));
    EXPECT_EQ(cache.runFusionWithInputs({Tensor::full({8}, DataType::Float, 2)})[0].toVector(),
              std::vector<double>(8, -2.0));
  }
}

// An Int input that is nothing but the factor of a split is a size of the program too.
TEST(GoodPrograms, RunWithASplitByAnInput) {
  runLoopback(2, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor({8});
      Val* parts = IrBuilder::create<Val>(DataType::Int);
      fusion->addInput(x);
      fusion->addInput(parts);
      const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
      x->setDeviceMesh(mesh);
      TensorView* y = neg(x);
      y->setDeviceMesh(mesh);
      y->outer_split(0, parts->intExpr());
      y->parallelize(0, mesh.axis("x"));
      fusion->addOutput(y);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    const Tensor y = cache.runFusionWithInputs({Tensor::full({8}, DataType::Float, 2), int64_t{2}})[0];
    EXPECT_EQ(y.toVector(), std::vector<double>(4, -2.0));
  });
}

TEST(BadSizes, ThatDisagreeWithEachOther) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeSymbolicTensor(2);
    TensorView* y = makeSymbolicTensor(2);
    TensorView* b = makeSymbolicTensor(1);
    f.addInput(x);
    f.addInput(y);
    f.addInput(b);
    f.addOutput(add(x, b));
    f.addOutput(matmul(x, y));
  });
  EXPECT_EQ(checked.call({blank({3, 4}), blank({4, 5}), blank({4})}), "");
  expectError(checked.cache(), {blank({3, 4}), blank({4, 5}), blank({5})}, {"4", "5"});
  expectError(checked.cache(), {blank({3, 4}), blank({4, 5}), blank({1})}, {"4", "1"});
  expectError(checked.cache(), {blank({3, 4}), blank({3, 5}), blank({4})}, {"4", "3"});
}

// Of ops that are composed of others: the error names the op that was called, and the inputs.
TEST(BadSizes, NameTheCalledOpAndTheInputs) {
  struct Row {
    std::string op;
    std::function<TensorView*(const std::vector<TensorView*>&)> call;  // of inputs a, b, ..
    std::vector<std::vector<int64_t>> sizes;
    std::string wrong;
  };
  const Row rows[] = {
      {"softmax_backward", [](auto& in) { return softmax_backward(in[0], in[1], 1); }, {{3, 4}, {3, 5}}, "b (T1)"},
      {"log_softmax_backward",
       [](auto& in) { return log_softmax_backward(in[0], in[1], 1); },
       {{3, 4}, {3, 5}},
       "a (T0)"},
      {"layer_norm",
       [](auto& in) { return layer_norm(in[0], 1, in[1], nullptr, 1e-5).output; },
       {{3, 4}, {5}},
       "b (T1)"},
      {"rms_norm", [](auto& in) { return rms_norm(in[0], 1, in[1], 1e-5).output; }, {{3, 4}, {5}}, "b (T1)"},
      {"batch_norm",
       [](auto& in) { return batch_norm(in[0], in[1], nullptr, nullptr, nullptr, true, 0.1, 1e-5).output; },
       {{3, 4, 2}, {5}},
       "b (T1)"},
      {"group_norm",
       [](auto& in) { return group_norm(in[0], 2, in[1], nullptr, 1e-5).output; },
       {{3, 4, 2}, {6}},
       "b (T1)"},
      {"sdpfa_fwd",
       [](auto& in) { return sdpfa_fwd(in[0], in[1], in[2]).output; },
       {{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 4}},
       "b (T1)"},
      {"cross_entropy_backward",
       [](auto& in) {
         return cross_entropy_backward(in[0], in[1], castOp(DataType::Int, in[2]), {.reduction = LossReduction::None});
       },
       {{4}, {3, 5}, {3}},
       "a (T0)"},
      {"lerp", [](auto& in) { return lerp(in[0], in[1], 0.25); }, {{3}, {4}}, "b (T1)"},
      {"addcmul", [](auto& in) { return addcmul(in[0], in[1], in[2], 2.0); }, {{3}, {3}, {4}}, "c (T2)"},
      {"addcmul", [](auto& in) { return addcmul(1.0, in[0], in[1], 2.0); }, {{3}, {4}}, "b (T1)"},
      {"add_alpha", [](auto& in) { return add_alpha(in[0], in[1], 2.0); }, {{3}, {4}}, "a (T0)"},
      {"sub_alpha", [](auto& in) { return sub_alpha(in[0], in[1], 2.0); }, {{3}, {4}}, "a (T0)"},
      {"cross_entropy",
       [](auto& in) { return cross_entropy(in[0], castOp(DataType::Int, in[1])); },
       {{3, 5}, {4}},
       "b (T1)"},
      {"relu_backward", [](auto& in) { return relu_backward(in[0], in[1]); }, {{3}, {4}}, "a (T0)"},
      {"of clamp:", [](auto& in) { return clamp(in[0], in[1], 1.0); }, {{3}, {4}}, "b (T1)"},
      {"of clamp_backward:", [](auto& in) { return clamp_backward(in[0], in[1], 0.0, 1.0); }, {{3}, {4}}, "a (T0)"},
      {"of threshold:", [](auto& in) { return threshold(in[0], in[1], 1.0); }, {{3}, {4}}, "b (T1)"},
      {"of threshold_backward:", [](auto& in) { return threshold_backward(in[0], in[1], 0.0); }, {{3}, {4}}, "a (T0)"},
      {"of softplus:", [](auto& in) { return softplus(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of leaky_relu:", [](auto& in) { return leaky_relu(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of dropout_backward:",
       [](auto& in) { return dropout_backward(in[0], castOp(DataType::Bool, in[1]), 2.0); },
       {{3}, {4}},
       "b (T1)"},
      {"of gelu_backward:", [](auto& in) { return gelu_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of tanh_gelu_backward:", [](auto& in) { return tanh_gelu_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of silu_backward:", [](auto& in) { return silu_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of softplus_backward:", [](auto& in) { return softplus_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of leaky_relu_backward:", [](auto& in) { return leaky_relu_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of tanh_backward:", [](auto& in) { return tanh_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"of sigmoid_backward:", [](auto& in) { return sigmoid_backward(in[0], in[1]); }, {{3}, {4}}, "b (T1)"},
      {"= takeAlongAxis:",
       [](auto& in) { return takeAlongAxis(in[0], castOp(DataType::Int, in[1]), 1); },
       {{3, 4}, {5, 4}},
       "b (T1)"},
      {"= indexPutAccumulate:",
       [](auto& in) { return indexPutAccumulate(in[0], castOp(DataType::Int, in[1]), in[2]); },
       {{3, 4}, {2}, {2, 5}},
       "c (T2)"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.op);
    CheckedCache checked([&](Fusion& f) {
      std::vector<TensorView*> in;
      for (const std::vector<int64_t>& shape : row.sizes) {
        in.push_back(makeContigTensor(std::ssize(shape)));
        f.addInput(in.back(), std::string(1, static_cast<char>('a' + in.size() - 1)));
      }
      f.addOutput(row.call(in));
    });
    std::vector<Argument> arguments;
    for (const std::vector<int64_t>& shape : row.sizes) {
      arguments.emplace_back(blank(shape));
    }
    expectError(checked.cache(), arguments, {row.op, "input " + row.wrong});
  }
}

TEST(BadSizes, OfReshapes) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeSymbolicTensor(1);
    f.addInput(x);
    f.addOutput(neg(reshape(x, {4, -1})));
  });
  EXPECT_EQ(checked.call({blank({12})}), "");
  expectError(checked.cache(), {blank({13})}, {"[reshape]", "13", "4"});
}

TEST(BadPrograms, InputsNobodyGives) {
  std::string error = errorOf([] {
    CheckedCache checked([](Fusion& f) { f.addOutput(neg(makeConcreteTensor({2}))); });
    (void)checked.cache().runFusionWithInputs({});
  });
  EXPECT_TRUE(error.starts_with("UserError: ")) << error;
  error = errorOf([] { FusionExecutorCache cache(nullptr); });
  EXPECT_TRUE(error.starts_with("UserError: [run]")) << error;
}

TEST(BadPrograms, QuestionsBeforeTheFirstCall) {
  CheckedCache checked([](Fusion& f) { f.addOutput(full({2}, 1, DataType::Float)); });
  for (const auto& question : std::vector<std::function<void()>>{
           [&] { (void)checked.cache().hostProgram(); }, [&] { (void)checked.cache().planText(); },
           [&] { (void)checked.cache().outputSharding(0); }, [&] { (void)checked.cache().commSteps(); },
           [&] { (void)checked.cache().explain(); }}) {
    EXPECT_EQ(errorOf(question), "UserError: [run] there is no plan before the first call; call the fusion first");
  }
  EXPECT_EQ(checked.call({}), "");
  EXPECT_TRUE(
      errorOf([&] { (void)checked.cache().outputSharding(1); }).starts_with("UserError: [run] got output index 1"));
}

}  // namespace

}  // namespace meshfuse
