// The numbers of programs: expressions in place of constants give the same ones; bad values are errors.
#include "host/program_sizes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/error.h"
#include "base/ranges.h"
#include "host/order_steps.h"
#include "host/program.h"
#include "host/verify_program.h"

namespace meshfuse {
namespace {

using Values = std::map<std::string, int64_t>;

// Random numbers, and expressions over fresh symbols that have these values.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  IntExpr expressionOf(const IntExpr& number) {
    const int64_t n = number.constValue();
    switch (below(6)) {
      case 0:
        return n;
      case 1:
        return symbol(n);
      case 2: {
        const int64_t left = below(n + 1);
        return symbol(left) + (n - left);
      }
      case 3:
        return floorDiv(symbol(3 * n + below(3)), 3);
      case 4:
        return n % 2 == 0 ? symbol(n / 2) * 2 : symbol(n) * symbol(1);
      default:
        return max(symbol(n), min(symbol(n), symbol(n / 2)));
    }
  }

  Values values;

 private:
  IntExpr symbol(int64_t value) {
    const std::string name = fmt::format("n{}", values.size());
    values.emplace(name, value);
    return IntExpr::symbol(name);
  }

  std::mt19937_64 random_;
};

// A block of some of the rows and columns of a matrix.
TensorBlocks randomBlocks(Numbers& numbers, int64_t rows, int64_t columns, int64_t count) {
  TensorBlocks result{.blocks = {}, .sizes = {rows, columns}};
  for (int64_t k = 0; k < count; k++) {
    Block block;
    for (const int64_t n : {rows, columns}) {
      const int64_t start = numbers.below(n);
      block.dims.push_back({{.start = start, .count = numbers.below(n - start + 1)}});
    }
    result.blocks.push_back(block);
  }
  return result;
}

CommCall randomCall(Numbers& numbers) {
  const std::vector<std::vector<int64_t>> teams = {{0, 1}, {0, 2}, {0, 1, 2}};
  CommCall call{.kind = Collective::AllReduce, .team = {teams[numbers.below(3)]}, .count = numbers.below(100)};
  const int64_t rows = 1 + numbers.below(6);
  const int64_t columns = 1 + numbers.below(6);
  const auto peers = std::ssize(call.team.ranks);
  if (numbers.below(2) == 0) {
    call.kind = Collective::AllToAll;
    call.pack = randomBlocks(numbers, rows, columns, peers);
    call.unpack = randomBlocks(numbers, columns, rows, peers);
    call.counts = mapped(call.pack.blocks, &Block::count);
    call.received = mapped(call.unpack.blocks, &Block::count);
  } else if (numbers.below(2) == 0) {
    call.kind = Collective::Transfer;
    call.keptFrom = randomBlocks(numbers, rows, columns, 1);
    call.keptTo = call.keptFrom;
    call.sends.push_back({1, randomBlocks(numbers, rows, columns, 1)});
    call.receives.push_back({1, randomBlocks(numbers, rows, columns, 1)});
    call.receives.push_back({2, randomBlocks(numbers, rows, columns, 1)});
  }
  call.bytesReceived = numbers.below(1000);
  return call;
}

// Steps that read earlier results; some are collectives, some tensors are views of others.
HostProgram randomProgram(Numbers& numbers, int64_t steps) {
  HostProgram program;
  program.ranks = 3;
  const auto tensor = [&](Place place, int64_t index) {
    const int64_t rows = numbers.below(20);
    const int64_t columns = 1 + numbers.below(20);
    program.tensors.push_back({.val = std::ssize(program.tensors),
                               .sizes = {rows, columns},
                               .strides = {columns, 1},
                               .bytes = rows * columns * 4,
                               .place = place,
                               .index = index});
    return std::ssize(program.tensors) - 1;
  };
  for (int64_t i = 0; i < 3; i++) {
    program.inputs.push_back(tensor(Place::Input, i));
  }
  for (int64_t i = 0; i < steps; i++) {
    Step step{.name = fmt::format("step {}", i)};
    const int64_t known = std::ssize(program.tensors);
    step.reads.push_back(std::max<int64_t>(0, known - 1 - numbers.below(6)));
    if (numbers.below(3) == 0) {
      step.kind = HostStepKind::Communicate;
      step.comm = randomCall(numbers);
    } else {
      step.launch.parts = numbers.below(50);
      step.launch.sizes = {numbers.below(50), numbers.below(50)};
    }
    for (int64_t k = numbers.below(3); k > 0; k--) {
      step.workspaces.push_back({numbers.below(500)});
    }
    step.writes.push_back(tensor(Place::Arena, 0));
    if (numbers.below(5) == 0) {
      TensorPlan view = program.tensors.back();
      std::swap(view.sizes[0], view.sizes[1]);
      view.strides[0] = view.sizes[1];
      view.storage = step.writes[0];
      program.tensors.push_back(std::move(view));
    }
    program.steps.push_back(std::move(step));
  }
  program.outputs = {std::ssize(program.tensors) - 1};
  program.aliasOf = {std::nullopt};
  return program;
}

// The program with expressions in place of its numbers.
HostProgram withSymbols(HostProgram program, Numbers& numbers) {
  const auto replace = [&](IntExpr& e) { e = numbers.expressionOf(e); };
  const auto replaceIn = [&](TensorBlocks& blocks) {
    std::ranges::for_each(blocks.sizes, replace);
    for (Block& block : blocks.blocks) {
      for (std::vector<SymbolicRun>& dim : block.dims) {
        for (SymbolicRun& run : dim) {
          replace(run.start);
          replace(run.count);
          replace(run.step);
        }
      }
    }
  };
  for (TensorPlan& t : program.tensors) {
    std::ranges::for_each(t.sizes, replace);
    std::ranges::for_each(t.strides, replace);
    replace(t.bytes);
  }
  for (Step& s : program.steps) {
    replace(s.launch.parts);
    std::ranges::for_each(s.launch.sizes, replace);
    std::ranges::for_each(s.workspaces, replace, &Workspace::bytes);
    replace(s.comm.count);
    replace(s.comm.bytesReceived);
    std::ranges::for_each(s.comm.counts, replace);
    std::ranges::for_each(s.comm.received, replace);
    for (TensorBlocks* blocks : {&s.comm.pack, &s.comm.unpack, &s.comm.keptFrom, &s.comm.keptTo}) {
      replaceIn(*blocks);
    }
    std::ranges::for_each(s.comm.sends, replaceIn, &CommCall::Message::block);
    std::ranges::for_each(s.comm.receives, replaceIn, &CommCall::Message::block);
  }
  std::ranges::for_each(program.arena, replace, &ArenaBlock::bytes);
  program.symbols = symbolsOf(program);
  return program;
}

TEST(ProgramSizes, ExpressionsGiveTheNumbersOfTheConstants) {
  int64_t symbols = 0;
  for (int64_t seed = 0; seed < 200; seed++) {
    Numbers numbers(seed);
    HostProgram constant = randomProgram(numbers, 5 + seed % 30);
    orderSteps(constant, {.allowed = seed % 2 == 0});
    const HostProgram symbolic = withSymbols(constant, numbers);
    constant.identity = identityFor(symbolic.identity, numbers.values);
    ProgramSizes expected = sizesOf(constant);
    expected.values = numbers.values;
    ASSERT_TRUE(sizesOf(symbolic, numbers.values) == expected) << "seed " << seed;
    symbols += std::ssize(symbolic.symbols);
  }
  EXPECT_GT(symbols, 200 * 50);
}

// The lives of blocks are those of all values: an order that is proved for some is proved for others.
TEST(ProgramSizes, OfOtherValuesAreOrderedToo) {
  for (int64_t seed = 0; seed < 100; seed++) {
    Numbers numbers(seed);
    HostProgram program = withSymbols(randomProgram(numbers, 5 + seed % 30), numbers);
    for (Step& s : program.steps) {
      s.comm = {.kind = s.comm.kind, .team = s.comm.team};  // blocks hold for one set of values
    }
    orderSteps(program, {.allowed = true});
    program.symbols = symbolsOf(program);
    for (int64_t round = 0; round < 3; round++) {
      for (auto& [name, value] : numbers.values) {
        value = numbers.below(300);
      }
      const ProgramSizes sizes = sizesOf(program, numbers.values);
      EXPECT_EQ(unorderedAccess(program, sizes), std::nullopt);
    }
  }
}

std::string errorOf(const TensorPlan& tensor, const Values& values) {
  HostProgram program{.tensors = {tensor}};
  program.symbols = symbolsOf(program);
  try {
    (void)sizesOf(program, values);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(ProgramSizes, BadValuesAreUserErrorsThatNameTheTensor) {
  const IntExpr n = IntExpr::symbol("n");
  const IntExpr m = IntExpr::symbol("m", {.lower = 4, .upper = 64, .divisor = 4});
  EXPECT_EQ(errorOf({.val = 3, .sizes = {n - 4, 2}}, {{"n", 1}}),
            "[host program] T3 Float[n - 4, 2] with n = 1: the size n - 4 is -3, expected 0 or more");
  EXPECT_EQ(errorOf({.val = 3, .sizes = {n, n}, .bytes = n * n * 4}, {{"n", int64_t{1} << 40}}),
            "[host program] T3 Float[n, n] with n = 1099511627776: [sizes] got 4398046511104 * 1099511627776, expected "
            "a result of "
            "64 bits; use smaller sizes");
  EXPECT_EQ(errorOf({.val = 3, .sizes = {n}}, {{"m", 1}}),
            "[host program] the sizes depend on n, which has no value, expected one; give it to the binding");
  EXPECT_EQ(errorOf({.val = 3, .sizes = {m}}, {{"m", 6}}),
            "[host program] m is 6, expected 4 to 64, a multiple of 4; give such a value, or build the program without "
            "these facts");
  EXPECT_EQ(errorOf({.val = 3, .sizes = {n}}, {{"n", -1}}),
            "[host program] n is -1, expected 0 or more; give such a value, or build the program without "
            "these facts");
  EXPECT_EQ(errorOf({.val = 3, .sizes = {m}}, {{"m", 64}}), "");
}

// Expressions that differ in a constant may share their terms, and ones with equal constants have terms of their own.
TEST(ProgramSizes, AnExpressionHasItsOwnValue) {
  const IntExpr n = IntExpr::symbol("n");
  const IntExpr m = IntExpr::symbol("m");
  const IntExpr next = n + 1;
  ASSERT_EQ(next.terms().data(), n.terms().data());
  HostProgram program{.tensors = {{.val = 3, .sizes = {next, n, next, m, m + 1, n, n * 1 + m}}}};
  const std::vector<IntExpr> sizes = {next, n, next, m, m + 1, n, n + IntExpr::symbol("k") + 1};
  program.steps.push_back({.kind = HostStepKind::Launch, .launch = {.sizes = sizes}});
  program.symbols = {{"n", {}}, {"m", {}}};
  const ProgramSizes known = sizesOf(program, {{"n", 5}, {"m", 9}});
  EXPECT_EQ(known.tensors[0].sizes, (std::vector<int64_t>{6, 5, 6, 9, 10, 5, 14}));
  EXPECT_EQ(known.steps[0].launch, (std::vector<IntExpr>{6, 5, 6, 9, 10, 5, IntExpr::symbol("k") + 6}));
}

// A call gives the run-time integers; a value of one here is none of the program's.
TEST(ProgramSizes, ARunTimeIntegerStaysOne) {
  const IntExpr n = IntExpr::symbol("n");
  const IntExpr root = IntExpr::symbol("root");
  HostProgram program{.tensors = {{.val = 3, .sizes = {n}}}};
  program.steps.push_back({.kind = HostStepKind::Communicate, .comm = {.kind = Collective::Broadcast, .root = root}});
  program.symbols = {{"n", {}}};
  EXPECT_EQ(sizesOf(program, {{"n", 5}, {"root", 1}}).steps[0].comm.root, root);
}

TEST(ProgramSizes, ABlockOutsideItsTensorIsAUserError) {
  const IntExpr n = IntExpr::symbol("n");
  HostProgram program;
  program.tensors = {{.val = 0, .sizes = {n, 3}}, {.val = 1, .sizes = {2, 3}}};
  CommCall call{.kind = Collective::Transfer};
  call.sends.push_back({1, {.blocks = {{.dims = {{{.start = 3, .count = 2}}, {{.count = 3}}}}}, .sizes = {n, 3}}});
  program.steps = {
      {.kind = HostStepKind::Communicate, .name = "transfer T1", .reads = {0}, .writes = {1}, .comm = call}};
  program.symbols = symbolsOf(program);
  EXPECT_EQ(sizesOf(program, {{"n", 5}}).steps[0].comm.sends[0].block.begin, 36);
  try {
    (void)sizesOf(program, {{"n", 4}});
    ADD_FAILURE() << "row 4 of 4 rows";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[host program] transfer T1 with n = 4: a block has 2 indices of dim 0 from 3 with step 1, expected "
                 "indices below 4");
  }
}

}  // namespace
}  // namespace meshfuse
