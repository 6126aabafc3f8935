#include "analysis/pass_context.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "analysis/id_graph.h"
#include "base/error.h"
#include "base/not_constant.h"
#include "base/pass_runner.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "programs/random_fusion.h"

namespace meshfuse {
namespace {

// An analysis that counts the outputs.
struct Outputs {
  static constexpr std::string_view kName = "outputs";
  explicit Outputs(const Fusion& fusion) : count(fusion.outputs().size()) {}
  size_t count;
};

TEST(PassContext, DropsWhatAPassDoesNotKeep) {
  std::unique_ptr<Fusion> f = randomFusion(1);
  PassContext context(*f);
  const ExactIds* ids = &context.get<ExactIds>();
  const size_t outputs = context.get<Outputs>().count;
  EXPECT_EQ(&context.get<ExactIds>(), ids);
  f->addOutput(f->inputs()[0]);
  const std::string_view keeps[] = {ExactIds::kName};
  context.changed(keeps);
  EXPECT_EQ(&context.get<ExactIds>(), ids);
  EXPECT_EQ(context.get<Outputs>().count, outputs + 1);
  f->addOutput(f->inputs()[0]);
  context.changed();
  EXPECT_EQ(context.get<Outputs>().count, outputs + 2);
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
bool needNumbers(Fusion&, PassContext&) { throw NotConstantError("i0 is not a constant"); }

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
    EXPECT_EQ(what.find("[test, break-types] produced an invalid program:\n  T1: loop dim 0 is bound"), 0u) << what;
    EXPECT_NE(what.find("reproducer: /tmp/repro-break-types"), std::string::npos);
  }
}

TEST(PassRunner, WithoutVerificationNoTextIsMade) {
  using Row = PassRow<Fusion, PassContext>;
  const Row failing[] = {{"break-types", breakTypes, "is not found"},
                         {"fail", [](Fusion&, PassContext&) -> bool { throwInternalError("as always"); }, "is named"}};
  const PassRunner<Fusion, PassContext> runner{
      .stage = "test",
      .print = [](const Fusion&) -> std::string { throw std::logic_error("printed"); },
      .verify = [](const Fusion& f) { return verify(f); },
      .options = {.verify = false},
      .reproduce = [](std::string_view pass, const std::string&) { return "/tmp/repro-" + std::string(pass); }};
  std::unique_ptr<Fusion> f =
      parseFusion("fusion {\n  T0 = input() : Float[4]\n  T1 = neg(T0) : Float[4]\n  output T1\n}");
  PassContext context(*f);
  try {
    runner.run(std::span<const Row>(failing), *f, context);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_STREQ(e.what(), "[test, fail] as always");
  }
}

TEST(PassRunner, ASizeThatIsNoConstantIsNotReproduced) {
  using Row = PassRow<Fusion, PassContext>;
  const Row rows[] = {{"need-numbers", needNumbers, "alone"}};
  const PassRunner<Fusion, PassContext> runner{
      .stage = "test",
      .print = [](const Fusion& f) { return f.toString(); },
      .reproduce = [](std::string_view, const std::string&) -> std::string { throw std::logic_error("reproduced"); }};
  std::unique_ptr<Fusion> f = randomFusion(1);
  PassContext context(*f);
  try {
    runner.run(std::span<const Row>(rows), *f, context);
    FAIL();
  } catch (const NotConstantError& e) {
    EXPECT_STREQ(e.what(), "[test, need-numbers] i0 is not a constant");
  }
}

}  // namespace
}  // namespace meshfuse
