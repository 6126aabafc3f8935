#include "analysis/dependencies.h"

#include <gtest/gtest.h>

#include "analysis/aliases.h"
#include "analysis/id_graph.h"
#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/pass_runner.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "programs/random_fusion.h"

namespace meshfuse {
namespace {

// Reach by the definition: a relation closed over operands.
std::vector<std::vector<bool>> closure(const Fusion& f) {
  size_t n = static_cast<size_t>(f.numVals());
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
  for (size_t k = 0; k < n; k++) {
    reach[k][k] = true;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const Expr* e : f.exprs(ExprSet::All)) {
      size_t out = static_cast<size_t>(e->output()->id());
      for (const Val* in : e->inputs()) {
        for (size_t k = 0; k < n; k++) {
          if (reach[static_cast<size_t>(in->id())][k] && !reach[out][k]) {
            reach[out][k] = changed = true;
          }
        }
      }
    }
  }
  return reach;
}

TEST(Dependencies, AgreeWithTheClosure) {
  for (uint64_t seed = 0; seed < 20; seed++) {
    std::unique_ptr<Fusion> f = randomFusion(seed, {.numExprs = 25, .transforms = false});
    Dependencies d(*f);
    std::vector<std::vector<bool>> reach = closure(*f);
    std::vector<TensorView*> tensors = f->tensors(ExprSet::All);
    for (TensorView* a : tensors) {
      for (TensorView* b : tensors) {
        bool expected = reach[static_cast<size_t>(a->id())][static_cast<size_t>(b->id())];
        ASSERT_EQ(d.dependsOn(a, b), expected);
        Val* from[] = {b};
        Val* to[] = {a};
        std::vector<Expr*> between = d.between(from, to);
        size_t count = 0;
        for (const Expr* e : f->exprs(ExprSet::All)) {
          size_t out = static_cast<size_t>(e->output()->id());
          count +=
              e->output() != b && reach[static_cast<size_t>(a->id())][out] && reach[out][static_cast<size_t>(b->id())]
                  ? 1
                  : 0;
        }
        ASSERT_EQ(between.size(), count);
      }
    }
  }
}

TEST(Aliases, FollowViews) {
  std::unique_ptr<Fusion> f = parseFusion(R"(fusion {
    T0 = input() : Float[4, 6] contiguity[t, t]
    T1 = input() : Float[4, 6] contiguity[f, t]
    T2 = input() : Float[4, 6] contiguity[t, t] alloc[1, 0]
    T3 = permute(T0, order=[1, 0]) : Float[6, 4]
    T4 = reshape(T0) : Float[24]
    T5 = reshape(T1) : Float[24]
    T6 = reshape(T2) : Float[24]
    T7 = reshape(T1) : Float[2, 2, 6]
    T8 = slice(T3, starts=[0, 0], stops=[3, 4], steps=[1, 1]) : Float[3, 4]
    T9 = neg(T8) : Float[3, 4]
    T10 = broadcast(T9, flags=[f, t, f]) : Float[3, b{1}, 4]
    T11 = cast(T0) : Float[4, 6]
    T12 = segment_set(T0) : Float[4, 6]
    output T4
    output T5
    output T6
    output T7
    output T8
    output T10
    output T11
    output T12
  })");
  Aliases a(*f);
  auto base = [&](int id) { return a.base(f->val(id)->asTensor())->id(); };
  EXPECT_EQ(base(4), 0);
  EXPECT_EQ(base(5), 5);  // rows do not touch
  EXPECT_EQ(base(6), 6);  // column order
  EXPECT_EQ(base(7), 1);  // a split asks for nothing
  EXPECT_EQ(base(8), 0);
  EXPECT_EQ(base(10), 9);
  EXPECT_EQ(base(11), 0);
  EXPECT_EQ(base(12), 12);
  std::vector<TensorView*> views = a.outputsThatViewInputs();
  ASSERT_EQ(views.size(), 4u);
  EXPECT_EQ(views[0]->id(), 4);
}

TEST(PassContext, DropsWhatAPassDoesNotKeep) {
  std::unique_ptr<Fusion> f = randomFusion(1);
  PassContext context(*f);
  const ExactIds* ids = &context.get<ExactIds>();
  const Dependencies* order = &context.get<Dependencies>();
  EXPECT_EQ(&context.get<ExactIds>(), ids);
  f->addOutput(f->inputs()[0]);
  const std::string_view keeps[] = {ExactIds::kName};
  context.changed(keeps);
  EXPECT_EQ(&context.get<ExactIds>(), ids);
  (void)order;
  context.changed();
  EXPECT_EQ(context.get<Dependencies>().position(f->exprs(ExprSet::All)[0]), 0);
}

bool addOutputAgain(Fusion& f, PassContext&) {
  f.addOutput(f.outputs()[0]);
  return true;
}
bool doNothing(Fusion&, PassContext&) { return false; }
bool breakTypes(Fusion& f, PassContext&) {
  f.outputs()[0]->asTensor()->axis(0)->parallelize(ParallelType::DIDx);
  return true;
}

TEST(PassRunner, DumpsVerifiesAndNames) {
  using Row = PassRow<Fusion, PassContext>;
  const Row good[] = {{"add-output", addOutputAgain, "first, since it is"},
                      {"do-nothing", doNothing, "after, since it can"}};
  const Row bad[] = {{"break-types", breakTypes, "to be found"}};
  std::string written;
  PassRunner<Fusion, PassContext> runner{
      .stage = "test",
      .print = [](const Fusion& f) { return f.toString(); },
      .verify = [](const Fusion& f) { return verify(f); },
      .options = {.dump = "do-nothing,add-output", .verify = true, .sink = [&](std::string_view t) { written += t; }},
      .reproduce = [](std::string_view pass, const std::string&) { return "/tmp/repro-" + std::string(pass); }};
  std::unique_ptr<Fusion> f =
      parseFusion("fusion {\n  T0 = input() : Float[4]\n  T1 = neg(T0) : Float[4]\n  output T1\n}");
  PassContext context(*f);
  EXPECT_TRUE(runner.run(std::span<const Row>(good), *f, context));
  EXPECT_EQ(written, "// test: after add-output\n" + f->toString() + "// test: do-nothing changed nothing\n");
  EXPECT_EQ(printPasses(std::span<const Row>(good)),
            "add-output: first, since it is\ndo-nothing: after, since it can\n");
  try {
    runner.run(std::span<const Row>(bad), *f, context);
    FAIL();
  } catch (const InternalError& e) {
    std::string what = e.what();
    EXPECT_EQ(what.find("[test, break-types] left a wrong program:\n  T1: loop dim 0 is bound"), 0u) << what;
    EXPECT_NE(what.find("reproducer: /tmp/repro-break-types"), std::string::npos);
  }
}

}  // namespace
}  // namespace meshfuse
