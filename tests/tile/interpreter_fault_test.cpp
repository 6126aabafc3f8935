#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tile/builder.h"
#include "tile/call.h"
#include "tile/interpreter.h"

namespace meshfuse::tile {
namespace {

using enum Level;
using enum DataType;

// A kernel over n elements: X in, Y out, a space of vectors in a loop. Shaped by the body.
struct Kernel {
  explicit Kernel(int64_t count, Memory memoryOfY = Memory::Output) : b("k", Target::Cpu), count(count) {
    n = b.size("N");
    p = b.gridDim("p", ceilDiv(n, 32));
    x = b.tensor({"X", Float, Memory::Input, {n}, {1}});
    y = b.tensor({"Y", Float, memoryOfY, {n}, {1}});
    s = b.space("s", {{"n", n, {{Part, 0, "p"}, {Serial, 4}, {Repeat, 2}, {Vector, 4}}}});
    i = b.coord(s, 0);
  }
  void each(const std::function<void()>& body) {
    b.loop(s, 0, 1, {}, [&](std::span<const ValueId>) {
      body();
      return std::vector<ValueId>{};
    });
  }
  Example example() const { return {b.program(), {count}, {}}; }
  Interpretation run() {
    kept = example();
    call = std::make_unique<Call>(kept);
    return interpret(kept.program, call->slots());
  }
  void fails(const std::string& phrase) {
    try {
      run();
      ADD_FAILURE() << "expected: " << phrase;
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(phrase), std::string::npos) << e.what();
    }
  }

  Builder b;
  int64_t count;
  IntExpr n, p, i;
  int x = 0, y = 0, s = 0;
  Example kept;
  std::unique_ptr<Call> call;
};

TEST(InterpreterFaults, OutOfBounds) {
  Kernel k(50);
  k.each([&] { k.b.store(k.y, {{k.i}}, k.b.load(k.x, {{k.i + 1}}, k.s)); });
  k.fails("X[50]: index 50 of dim 0 is outside of [0, 50)");
}

TEST(InterpreterFaults, ConditionsGuardAccesses) {
  Kernel k(50);
  k.each([&] {
    ValueId shifted = k.b.load(k.x, {{k.i + 1}}, k.s, {.where = {{k.i + 1, k.n}}, .fill = k.b.constant(Float, 3)});
    k.b.store(k.y, {{k.i}}, shifted);
  });
  k.run();
  EXPECT_EQ(k.call->values(k.y)[49], 3);
  EXPECT_EQ(k.call->values(k.y)[48], k.call->values(k.x)[49]);
}

TEST(InterpreterFaults, PoisonMayNotBeStored) {
  Kernel k(50);
  k.each([&] { k.b.store(k.y, {{k.i}}, k.b.load(k.x, {{k.i + 1}}, k.s, {.where = {{k.i + 1, k.n}}})); });
  k.fails("the stored value at position");
}

TEST(InterpreterFaults, PoisonMayNotBeReduced) {
  Kernel k(50);
  k.each([&] {
    ValueId shifted = k.b.load(k.x, {{k.i + 1}}, k.s, {.where = {{k.i + 1, k.n}}});
    k.b.keep(k.b.reduceAxis(shifted, 0, Combiner::Sum));
  });
  k.fails("of the reduced value");
}

TEST(InterpreterFaults, PoisonMayBeLeftUnselected) {
  Kernel k(50);
  k.each([&] {
    ValueId shifted = k.b.load(k.x, {{k.i + 1}}, k.s, {.where = {{k.i + 1, k.n}}});
    ValueId inside = k.b.point(PointOp::Lt, {k.b.indexValue(k.i + 1, k.s), k.b.indexValue(k.n, k.s)});
    k.b.store(k.y, {{k.i}}, k.b.point(PointOp::Where, {inside, shifted, k.b.constant(Float, 0)}));
  });
  EXPECT_NO_THROW(k.run());
}

TEST(InterpreterFaults, PoisonMayNotBeAMaskOrAnIndex) {
  Kernel k(50);
  k.each([&] {
    ValueId shifted = k.b.load(k.x, {{k.i + 1}}, k.s, {.where = {{k.i + 1, k.n}}});
    ValueId mask = k.b.point(PointOp::Lt, {shifted, k.b.constant(Float, 0)});
    k.b.store(k.y, {{k.i}}, k.b.load(k.x, {{k.i}}, k.s), {.mask = mask});
  });
  k.fails("the mask of a store at position");
  Kernel l(50);
  l.each([&] {
    ValueId at = l.b.cast(l.b.load(l.x, {{l.i + 1}}, l.s, {.where = {{l.i + 1, l.n}}}), Int);
    l.b.store(l.y, {{l.i}}, l.b.load(l.x, {{0, at}}, l.s));
  });
  l.fails("outside of [0, 50)");  // -1 of the first element truncated, or beyond
}

TEST(InterpreterFaults, ScratchIsReadAfterItIsWritten) {
  Kernel k(50);
  int row = k.b.tensor({"R", Float, Memory::Scratch, {k.n}, {1}});
  k.each([&] { k.b.store(k.y, {{k.i}}, k.b.load(row, {{k.i}}, k.s)); });
  k.fails("R[0] is read before this part wrote it");
}

TEST(InterpreterFaults, OneWriter) {
  Kernel twice(50);
  twice.each([&] { twice.b.store(twice.y, {{floorDiv(twice.i, 2)}}, twice.b.load(twice.x, {{twice.i}}, twice.s)); });
  twice.fails("is written twice by one store");
  Kernel again(50);
  again.each([&] {
    ValueId v = again.b.load(again.x, {{again.i}}, again.s);
    again.b.store(again.y, {{again.i}}, v);
    again.b.store(again.y, {{again.i}}, v);
  });
  again.fails("is written by part 0 after part 0 wrote it");
  Kernel parts(50);
  parts.each([&] { parts.b.store(parts.y, {{parts.i - parts.p * 32}}, parts.b.load(parts.x, {{parts.i}}, parts.s)); });
  parts.fails("is written by part 1 after part 0 wrote it");
}

TEST(InterpreterFaults, InOutIsReadByItsWriterBeforeItIsWritten) {
  Kernel good(50, Memory::InOut);
  good.each([&] { good.b.store(good.y, {{good.i}}, good.b.load(good.y, {{good.i}}, good.s)); });
  EXPECT_NO_THROW(good.run());
  Kernel late(50, Memory::InOut);
  late.each([&] {
    late.b.store(late.y, {{late.i}}, late.b.load(late.x, {{late.i}}, late.s));
    late.b.keep(late.b.load(late.y, {{late.i}}, late.s));
  });
  late.fails("is read by part 0 after part 0 wrote it");
  Kernel foreign(64, Memory::InOut);
  foreign.each([&] {
    ValueId zero = foreign.b.constant(Float, 0);
    ValueId far = foreign.b.load(foreign.y, {{foreign.i + 32}}, foreign.s,
                                 {.where = {{foreign.i + 32, foreign.n}}, .fill = zero});
    foreign.b.store(foreign.y, {{foreign.i}}, far);
  });
  foreign.fails("but other parts read it");
}

TEST(InterpreterFaults, WorkspacesAreSeenByTheLastArriverOnly) {
  for (bool last : {true, false}) {
    Kernel k(50);
    int w = k.b.tensor({"W", Float, Memory::Workspace, {k.n}, {1}});
    int c = k.b.tensor({"C", Int32, Memory::Workspace, {1}, {1}, 1, true});
    k.each([&] { k.b.store(w, {{k.i}}, k.b.load(k.x, {{k.i}}, k.s)); });
    int t = k.b.space("t", {{"j", k.n, {{Serial, 0}, {Vector, 8}}}});
    auto copy = [&] {
      k.b.loop(t, 0, 0, {}, [&](std::span<const ValueId>) {
        k.b.store(k.y, {{k.b.coord(t, 0)}}, k.b.load(w, {{k.b.coord(t, 0)}}, t));
        return std::vector<ValueId>{};
      });
    };
    if (last) {
      k.b.lastArriver(c, copy);
      k.run();
      EXPECT_EQ(k.call->values(k.x), k.call->values(k.y));
    } else {
      k.b.when({{k.p, 1}}, copy);  // part 0 runs first
      k.fails("W[32] is read before anything wrote it");
    }
  }
}

TEST(InterpreterFaults, AlignmentAndFactsArePromises) {
  Example example = addProgram(Target::Cpu, Float, 64);
  Call call(example);
  std::vector<uint64_t> slots = call.slots();
  slots[0] += 4;
  EXPECT_THROW(interpret(example.program, slots), InternalError);
  slots[0] -= 4;
  slots[3] = 63;
  EXPECT_THROW(interpret(example.program, slots), InternalError);
  slots.pop_back();
  EXPECT_THROW(interpret(example.program, slots), InternalError);
}

// Carries: positions beyond the bound keep what they carried; a carry without the inner digits follows the first position.
TEST(InterpreterFaults, CarriesLeaveOutPositionsBeyondTheBound) {
  Kernel k(13);
  int total = k.b.tensor({"T", Float, Memory::Output, {1}, {1}});
  uint64_t all = axisDigits(k.b.program().spaces[0], 0);
  std::vector<ValueId> ends = k.b.loop(
      k.s, 0, 1, {k.b.constant(Float, 0, k.s, all), k.b.integer(Int, 0)}, [&](std::span<const ValueId> carried) {
        ValueId x = k.b.load(k.x, {{k.i}}, k.s);
        k.b.store(k.y, {{k.i}}, x);
        return std::vector<ValueId>{k.b.point(PointOp::Add, {carried[0], x}),
                                    k.b.point(PointOp::Add, {carried[1], k.b.integer(Int, 1)})};
      });
  ValueId steps = k.b.cast(ends[1], Float);
  ValueId sum = k.b.reduceAxis(ends[0], 0, Combiner::Sum);
  k.b.when({{k.p, 1}}, [&] {
    ValueId thousands = k.b.point(PointOp::Mul, {steps, k.b.constant(Float, 1000)});
    k.b.store(total, {{0}}, k.b.point(PointOp::Add, {sum, thousands}));
  });
  Example example = k.example();
  EXPECT_EQ(verify(example.program), std::vector<std::string>{});
  k.run();
  double expected = 2000;  // two steps of 8 positions cover 13
  for (double x : k.call->values(k.x)) {
    expected += x;
  }
  EXPECT_NEAR(k.call->values(total)[0], expected, 1e-3);
}

TEST(InterpreterFaults, AnEmptyAxisReducesToTheIdentity) {
  for (Target target : {Target::Cpu, Target::Gpu}) {
    Example example = innerSumProgram(target, Float, 3, 0);
    example.program.sizes[1].facts.lower = 0;
    Call call(example);
    interpret(example.program, call.slots());
    EXPECT_EQ(call.values(1), (std::vector<double>{0, 0, 0}));
  }
}

TEST(InterpreterFaults, ReductionsTakeConditions) {
  Kernel k(20);
  int odd = k.b.tensor({"O", Float, Memory::Output, {ceilDiv(k.n, 8)}, {1}});
  k.each([&] {
    ValueId x = k.b.load(k.x, {{k.i}}, k.s);
    k.b.store(k.y, {{k.i}}, x);
    ValueId sum = k.b.reduce(x, axisDigits(k.b.program().spaces[0], 0), Combiner::Sum, {{0, mod(k.i, 2)}});
    k.b.store(odd, {{IntExpr::symbol("p") * 4 + IntExpr::symbol("n_s")}}, sum);
  });
  Example example = k.example();
  EXPECT_EQ(verify(example.program), std::vector<std::string>{});
  k.run();
  std::vector<double> x = k.call->values(k.x), got = k.call->values(odd), expected(3, 0);
  for (size_t i = 1; i < 20; i += 2) {
    expected[i / 8] += x[i];
  }
  for (size_t i = 0; i < 3; i++) {
    EXPECT_NEAR(got[i], expected[i], 1e-5);
  }
}

}  // namespace
}  // namespace meshfuse::tile
