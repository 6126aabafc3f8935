// MESHFUSE_DUMP names passes that there are, like MESHFUSE_VERIFY.
#include "exec/dumped_passes.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

// The variable, for the life of this object.
class Dump {
 public:
  explicit Dump(const char* value) { setenv("MESHFUSE_DUMP", value, 1); }
  ~Dump() { unsetenv("MESHFUSE_DUMP"); }
};

std::string refusalOf(const char* value) {
  const Dump dump(value);
  try {
    checkDumpedPasses();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(DumpedPasses, NamesOfBothTablesAndAll) {
  EXPECT_EQ(refusalOf(""), "");
  EXPECT_EQ(refusalOf("all"), "");
  EXPECT_EQ(refusalOf("check-annotations,fold-transposes"), "");
  EXPECT_EQ(refusalOf("check-annotations,"), "");
  for (const char* wrong : {"bogus", "check-annotations,bogus", "bogus,all"}) {
    EXPECT_NE(refusalOf(wrong).find("MESHFUSE_DUMP names \"bogus\"; there are: check-annotations, "), std::string::npos)
        << refusalOf(wrong);
  }
}

TEST(DumpedPasses, ACallThatCompilesRefusesOthers) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(1);
    fusion->addInput(x);
    fusion->addOutput(neg(x));
  }
  FusionExecutorCache cache(std::move(fusion));
  const std::vector<Argument> inputs{Tensor::of({1, 2, 3}, {3})};
  {
    const Dump dump("bogus");
    EXPECT_THROW((void)cache.runFusionWithInputs(inputs), UserError);
  }
  EXPECT_EQ(cache.runFusionWithInputs(inputs)[0].at({1}), -2);
}

}  // namespace
}  // namespace meshfuse
