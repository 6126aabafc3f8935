// Names of inputs and outputs.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

std::string nameRefusal(const std::function<void(Fusion&)>& build) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  try {
    build(fusion);
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

TEST(Names, ArePartOfTheText) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigTensor(1);
  TensorView* w = makeContigTensor(1);
  fusion.addInput(x, "layers.0/w_1-a:b");
  fusion.addInput(w);
  TensorView* y = add(x, w);
  fusion.addOutput(y, "y");
  fusion.addOutput(y, "again");
  fusion.addOutput(neg(y));
  const std::string text = fusion.toString();
  EXPECT_NE(text.find("T0 = input(layers.0/w_1-a:b) : Float[i0]"), std::string::npos) << text;
  EXPECT_NE(text.find("T1 = input() : Float[i1]"), std::string::npos) << text;
  EXPECT_NE(text.find("output T2 as y\n  output T2 as again\n  output T3\n"), std::string::npos) << text;
  const auto read = parseFusion(text);
  EXPECT_EQ(read->toString(), text);
  EXPECT_EQ(read->inputNames(), fusion.inputNames());
  EXPECT_EQ(read->outputNames(), (std::vector<std::string>{"y", "again", ""}));
  EXPECT_EQ(fusion.clone()->toString(), text);
  EXPECT_EQ(inputText(fusion, 0), "input layers.0/w_1-a:b (T0)");
  EXPECT_EQ(inputText(fusion, 1), "input 1 (T1)");
  EXPECT_EQ(outputText(fusion, 2), "output 2 (T3)");
}

// A name is that of a place in the list, whichever value passes put there.
TEST(Names, StayWhenValuesAreReplacedOrRemoved) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigTensor(1);
  fusion.addInput(x, "x");
  TensorView* a = neg(x);
  TensorView* b = set(x);
  fusion.addOutput(a, "a");
  fusion.addOutput(b, "b");
  fusion.replaceUses(b, x);
  EXPECT_EQ(outputText(fusion, 1), "output b (T0)");
  fusion.removeOutput(a);
  EXPECT_EQ(fusion.outputNames(), (std::vector<std::string>{"b"}));
}

TEST(Names, RefusesBadOnes) {
  const auto twoInputs = [](const char* first, const char* second) {
    return [=](Fusion& fusion) {
      fusion.addInput(makeContigTensor(1), first);
      fusion.addInput(makeContigTensor(1), second);
    };
  };
  EXPECT_EQ(nameRefusal(twoInputs("", "")), "none");
  EXPECT_EQ(nameRefusal(twoInputs("T", "S1x")), "none");
  EXPECT_NE(nameRefusal(twoInputs("x", "x")).find("[addInput] the name x is given twice"), std::string::npos);
  EXPECT_NE(nameRefusal(twoInputs("x", "a b")).find("has the character ' '"), std::string::npos);
  EXPECT_NE(nameRefusal(twoInputs("x", "(")).find("has the character '('"), std::string::npos);
  EXPECT_NE(nameRefusal(twoInputs("x", "T12")).find("T12 has the form of a value's number"), std::string::npos);
  const std::string twice = nameRefusal([](Fusion& fusion) {
    TensorView* x = makeContigTensor(1);
    fusion.addInput(x, "x");
    fusion.addOutput(x, "x");
    fusion.addOutput(neg(x), "x");
  });
  EXPECT_NE(twice.find("[addOutput] the name x is given twice"), std::string::npos) << twice;
  const auto text = [](const std::string& lines) {
    return nameRefusal([&](Fusion&) { (void)parseFusion("fusion {\n" + lines + "}\n"); });
  };
  EXPECT_EQ(text("T0 = input(x) : Float[4] contiguity[t]\noutput T0 as y\n"), "none");
  EXPECT_NE(text("T0 = input(x y) : Float[4] contiguity[t]\noutput T0\n").find("fusion:2:1"), std::string::npos);
  EXPECT_NE(text("T0 = input() : Float[4] contiguity[t]\noutput T0 as\n}"), "none");
  EXPECT_NE(text("T0 = input() : Float[4] contiguity[t]\noutput T0 as a,b\n").find("has the character ','"),
            std::string::npos);
}

}  // namespace
}  // namespace meshfuse
