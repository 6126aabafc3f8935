// One name for a tensor from the user's program to the kernel: whatever stage still has a tensor of that number means the same.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "base/error.h"
#include "device/forwarding_device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "fuzz/program.h"
#include "host/build.h"
#include "host/executor.h"
#include "interpret/bounds.h"
#include "interpret/interpret.h"
#include "ir/text.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "preseg_passes/rank_simulator.h"

namespace meshfuse {

namespace {

using ValuesByNumber = std::map<int, BoundedTensor>;

// A copy whose results are all its tensors, and their numbers.
std::pair<std::unique_ptr<Fusion>, std::vector<int>> withAllResults(const Fusion& fusion) {
  std::unique_ptr<Fusion> all = fusion.clone();
  std::vector<int> numbers;
  while (!all->outputs().empty()) {
    all->removeOutput(all->outputs()[0]);
  }
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->definition() != nullptr) {
      all->addOutput(all->val(tv->id()));
      numbers.push_back(tv->id());
    }
  }
  return {std::move(all), std::move(numbers)};
}

ValuesByNumber valuesOf(const Fusion& fusion, std::span<const Argument> inputs, int64_t partials) {
  auto [all, numbers] = withAllResults(fusion);
  std::vector<BoundedTensor> results = interpretWithBounds(*all, inputs, {.partials = partials});
  ValuesByNumber values;
  for (size_t i = 0; i < numbers.size(); i++) {
    values[numbers[i]] = results[i];
    values[numbers[i]].uncertain = 0;
  }
  return values;
}

struct NumbersCase {
  std::string name;
  std::unique_ptr<Fusion> fusion;
  std::vector<Argument> inputs;  // whole
  int ranks = 1;
};

std::vector<SegmentedProgram> compiledOn(const NumbersCase& c) {
  std::vector<SegmentedProgram> made(c.ranks);
  std::mutex mutex;
  runLoopback(c.ranks, [&](Communicator& comm) {
    std::vector<Argument> local = c.inputs;
    for (size_t i = 0; i < local.size(); i++) {
      if (const Tensor* t = std::get_if<Tensor>(&local[i])) {
        local[i] = shardTensor(*t, c.fusion->inputs()[i]->asTensor(), comm.rank()).clone();
      }
    }
    SegmentedProgram program = compileToSegments(*c.fusion, local, Agreement(comm).call(),
                                                 openDevice(defaultDevice(), {.threads = 1})->info());
    std::lock_guard lock(mutex);
    made[comm.rank()] = std::move(program);
  });
  return made;
}

DeviceMesh meshOf(const Fusion& fusion) {
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->hasDeviceMesh()) {
      return tv->getDeviceMesh();
    }
  }
  return {};
}

// What a pass makes of an op ends with a move of the result; of a linear that is summed in parts, with its bias, rounded to its type; of a
// scan in blocks, with the blocks as one dim; of the first elements of blocks, with a choice among them.
bool endsWith(std::string_view op, std::string_view last) {
  return last == op || last == "redistribute" || last == "set" ||
         (op == "linear" && (last == "add" || last == "cast")) ||
         (op == "scan" && (last == "reshape" || last == "slice")) || (op == "argsort" && last == "take_along_axis") ||
         (op == "take_along_axis" && last == "cast");
}

// In the global view: op, type and shape.
void expectSameInPlan(const NumbersCase& c, const Fusion& planned, const ValuesByNumber& expected, int& compared) {
  for (const TensorView* tv : planned.tensors()) {
    if (tv->definition() == nullptr || tv->id() >= c.fusion->numVals()) {
      continue;
    }
    const Val* known = c.fusion->val(tv->id());
    ASSERT_TRUE(known != nullptr && known->isTensor()) << "T" << tv->id() << " is no tensor of the program";
    EXPECT_EQ(tv->dtype(), known->dtype());
    const std::string_view op = tv->definition()->opName();
    EXPECT_TRUE(endsWith(known->definition()->opName(), op))
        << "T" << tv->id() << " = " << op << ", was " << known->definition()->opName();
    EXPECT_TRUE(std::ranges::equal(tv->constantShape(), expected.at(tv->id()).value.sizes())) << tv->toString();
    compared++;
  }
}

// On each rank: the values of the parts of the planned program's tensors that the rank holds.
void expectSameOnRanks(const NumbersCase& c, const std::vector<SegmentedProgram>& made, const ValuesByNumber& expected,
                       int& compared) {
  const Fusion& planned = *made[0].planned;
  const DeviceMesh mesh = meshOf(planned);
  const size_t places = mesh.empty() ? 1 : static_cast<size_t>(c.ranks);
  auto rankAt = [&](size_t place) { return mesh.empty() ? 0 : mesh.devices()[place]; };
  std::vector<std::unique_ptr<Fusion>> programs;
  std::vector<std::vector<int>> numbers;  // of each place's results
  std::vector<std::vector<Tensor>> parts(places);
  for (size_t place = 0; place < places; place++) {
    auto [all, of] = withAllResults(*made[rankAt(place)].local);
    programs.push_back(std::move(all));
    numbers.push_back(std::move(of));
    for (size_t i = 0; i < c.inputs.size(); i++) {
      const TensorView* placed = planned.inputs()[i]->asTensor();
      parts[place].push_back(shardTensor(std::get<Tensor>(c.inputs[i]), placed, rankAt(place)).contiguous());
    }
  }
  std::vector<const Fusion*> views;
  for (const auto& p : programs) {
    views.push_back(p.get());
  }
  const std::vector<std::vector<Tensor>> results =
      mesh.empty() ? std::vector<std::vector<Tensor>>{interpret(*programs[0], c.inputs)}
                   : simulateRanks(views, mesh, parts);
  for (size_t place = 0; place < places; place++) {
    for (size_t k = 0; k < numbers[place].size(); k++) {
      const int number = numbers[place][k];
      auto whole = expected.find(number);
      if (whole == expected.end()) {
        EXPECT_GE(number, c.fusion->numVals()) << "a new tensor has the number of another value of the program";
        continue;
      }
      ASSERT_LT(number, planned.numVals());
      const Val* placed = planned.val(number);
      ASSERT_TRUE(placed != nullptr && placed->isTensor()) << "T" << number << " is not in the plan";
      const BoundedTensor part{shardTensor(whole->second.value, placed->asTensor(), rankAt(place)).contiguous(),
                               shardTensor(whole->second.error, placed->asTensor(), rankAt(place)).contiguous(), 0};
      EXPECT_EQ(compare(results[place][k], part), std::nullopt) << "T" << number << " on rank " << rankAt(place);
      compared += place == 0 ? 1 : 0;
    }
  }
}

int expectSameNumbers(const NumbersCase& c) {
  SCOPED_TRACE(c.name);
  int compared = 0;
  const ValuesByNumber expected = valuesOf(*c.fusion, c.inputs, c.ranks);
  const std::vector<SegmentedProgram> made = compiledOn(c);
  for (size_t i = 0; i < c.fusion->inputs().size(); i++) {
    const int number = c.fusion->inputs()[i]->id();
    EXPECT_EQ(made[0].planned->inputs()[i]->id(), number);
    EXPECT_EQ(made[0].local->inputs()[i]->id(), number);
  }
  expectSameInPlan(c, *made[0].planned, expected, compared);
  const bool scalars =
      std::ranges::any_of(c.inputs, [](const Argument& a) { return !std::holds_alternative<Tensor>(a); });
  if (!scalars) {
    expectSameOnRanks(c, made, expected, compared);
  }
  return compared;
}

TEST(Numbers, AreOfOneTensorInEveryStage) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    fuzz::Program program = fuzz::randomProgram(seed);
    compared += expectSameNumbers({fmt::format("seed {}\n{}", seed, program.fusion->toString()),
                                   std::move(program.fusion), program.inputs, program.ranks});
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GE(compared, 600);
}

TEST(Numbers, OfProgramsInFiles) {
  const std::map<std::string, int> ranks = {{"tensor_parallel_mlp", 2}, {"sharded_sum", 4}, {"rows_to_columns", 4}};
  for (const auto& [name, count] : ranks) {
    std::ifstream file(std::string(MESHFUSE_SOURCE_DIR) + "/tests/tools/" + name + ".fir");
    std::stringstream text;
    text << file.rdbuf();
    NumbersCase c{name, parseFusion(text.str()), {}, count};
    std::vector<std::vector<int64_t>> sizes;
    for (const Val* in : c.fusion->inputs()) {
      std::vector<int64_t> shape;
      for (const IntExpr& e : in->asTensor()->shape()) {
        shape.push_back(e.isConst() ? e.constValue() : 8);
      }
      c.inputs.emplace_back(randomTensor(shape, in->dtype(), static_cast<uint64_t>(in->id()), -2, 2));
    }
    EXPECT_GE(expectSameNumbers(c), 2) << name;
  }
}

// T7 stands alone in the file, so that no stage would come by that number itself.
constexpr const char* kSum = R"(fusion {
  mesh M0 {x: 2} [0, 1]
  T3 = input() : Float[8, 6] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)
  T7 = exp(T3) : Float[8, 6]
  T9 = reduce(T7, op=sum) : Float[r{8}, 6] mesh M0
  T12 = neg(T9) : Float[6]
  output T12
})";

TEST(Numbers, AreThoseOfTheFileInWhatUsersRead) {
  runLoopback(2, [](Communicator& comm) {
    std::unique_ptr<Fusion> fusion = parseFusion(kSum);
    const auto absForNeg = [](std::span<const tile::Program> programs) {
      std::vector<tile::Program> changed(programs.begin(), programs.end());
      for (tile::Program& p : changed) {
        for (tile::Value& v : p.values) {
          v.op = v.kind == tile::ValueKind::Point && v.op == PointOp::Neg ? PointOp::Abs : v.op;
        }
      }
      return changed;
    };
    const auto device = std::make_shared<ChangingDevice>(openDevice(defaultDevice(), {.threads = 1}), absForNeg);
    const std::vector<Argument> inputs = {randomTensor({4, 6}, DataType::Float, 1, 0, 1)};
    CompiledProgram compiled = compile(*fusion, inputs, Agreement(comm).call(), device);

    const Explanation e = explain(compiled, comm.rank());
    std::vector<std::string> names;
    for (const ExplainedTensor& t : e.tensors) {
      names.push_back(t.name + " " + t.madeBy);
    }
    for (const char* name : {"T3 input", "T7 exp", "T9 redistribute", "T12 neg"}) {
      EXPECT_TRUE(std::ranges::count(names, name) == 1) << name << " is not in " << fmt::format("{}", names);
    }
    std::string steps;
    for (const ExplainedStep& s : e.steps) {
      steps += fmt::format("{} {}: {} -> {}\n", s.kind, s.name, s.reads, s.writes);
    }
    EXPECT_NE(steps.find("[\"T3[4, 6]\"]"), std::string::npos) << steps;
    EXPECT_NE(steps.find("communicate T9[6]"), std::string::npos) << steps;
    EXPECT_NE(steps.find("[\"T9[6]\"] -> [\"T12[6]\"]"), std::string::npos) << steps;

    std::vector<Tensor> outputs = {Tensor::empty({6}, DataType::Float)};
    Binding binding(compiled.host, comm);
    std::string verdict;
    try {
      binding.run(comm, inputs, outputs, {.verify = true});
    } catch (const InternalError& error) {
      verdict = error.what();
    }
    EXPECT_NE(verdict.find("[verify] T12, computed by pointwise T12"), std::string::npos) << verdict;

    std::string error;
    try {
      (void)compile(*fusion, std::vector<Argument>{Tensor::zeros({4, 5}, DataType::Float)}, Agreement(comm).call(),
                    device);
    } catch (const UserError& e) {
      error = e.what();
    }
    EXPECT_NE(error.find("T3"), std::string::npos) << error;
  });
}

}  // namespace

}  // namespace meshfuse
