#include <gtest/gtest.h>

#include "ir/fusion.h"
#include "ir/text.h"
#include "preseg_passes/reshard_partials.h"

namespace meshfuse {
namespace {

struct LinearRow {
  const char* op;
  bool isLinear;
};

const LinearRow kLinearRows[] = {
    {"set(T0) : Float[4, 6]", true},
    {"segment_set(T0) : Float[4, 6]", false},
    {"permute(T0, order=[1, 0]) : Float[6, 4]", true},
    {"reshape(T0) : Float[24]", true},
    {"slice(T0, starts=[1, 0], stops=[3, 6], steps=[1, 2]) : Float[2, 3]", true},
    {"slice(T2, starts=[1, 0], stops=[3, 6], steps=[1, 2]) : Half[2, 3]", true},
    {"pad(T0, 0.0, starts=[1, 0], stops=[0, 2]) : Float[5, 8]", false},
    {"broadcast(T0, flags=[t, f, f]) : Float[b{1}, 4, 6]", false},
    {"squeeze(T3, flags=[t, f]) : Float[6]", false},
    {"expand(T3) : Float[3, 6]", false},
    {"cat(T0, dim=0) : Float[4, 6]", false},
    {"scan(T0, op=sum, dim=1) : Float[4, 6]", false},
    {"bit_cast(T0) : Int32[4, 6]", false},
    {"neg(T0) : Float[4, 6]", true},
    {"exp(T0) : Float[4, 6]", false},
    {"add(T0, T0) : Float[4, 6]", false},
    {"add(T0, 1.0) : Float[4, 6]", false},
    {"mul(T0, T0) : Float[4, 6]", false},
    {"mul(T0, 2.0) : Float[4, 6]", true},
    {"mul(2.0, T0) : Float[4, 6]", true},
    {"mul(T0, 0.0) : Float[4, 6]", false},
    {"mul(T0, S9) : Float[4, 6]", false},
    {"mul(T1, 2) : Int[4, 6]", true},
    {"div(T0, 2.0) : Float[4, 6]", true},
    {"div(T0, 0.0) : Float[4, 6]", false},
    {"div(2.0, T0) : Float[4, 6]", false},
    {"div(T1, 2) : Int[4, 6]", false},
    {"cast(T0) : Double[4, 6]", true},
    {"cast(T2) : Float[4, 6]", true},
    {"cast(T0) : Half[4, 6]", false},
    {"cast(T0) : Float[4, 6]", false},
    {"cast(T1) : Double[4, 6]", false},
    {"reduce(T0, op=sum) : Float[r{4}, 6]", true},
    {"reduce(T0, op=max) : Float[r{4}, 6]", false},
    {"reduce(T2, op=sum) : Half[r{4}, 6]", false},
};

TEST(LinearOps, RoundNoMoreOftenOnContributions) {
  for (const LinearRow& row : kLinearRows) {
    const std::unique_ptr<Fusion> program = parseFusion(std::string(R"(fusion {
      mesh M0 {x: 2} [0, 1]
      T0 = input() : Float[4, 6] mesh M0
      T1 = input() : Int[4, 6] mesh M0
      T2 = input() : Half[4, 6] mesh M0
      T3 = input() : Float[b{1}, 6] mesh M0
      S9 = input() : Double
      T10 = )") + row.op + " mesh M0\n  output T10\n}");
    ASSERT_TRUE(verify(*program).empty()) << row.op << "\n" << verify(*program)[0];
    EXPECT_EQ(isLinear(program->outputs()[0]->definition()), row.isLinear) << row.op;
  }
}

}  // namespace
}  // namespace meshfuse
