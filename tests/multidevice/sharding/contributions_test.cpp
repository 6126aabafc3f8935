#include "multidevice/sharding/contributions.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

struct Case {
  const char* mesh;
  const char* result;   // of the sum of [8, 16] over dim 0
  const char* message;  // part of it, or ""
};

const Case kCases[] = {
    {"{x: 2} [0, 1]", "[p{2}, r{4}, 16] root[r{8}, 16; outer_split(0, 2)] mesh M0 parallelize(0, DIDx)", ""},
    {"{y: 2, x: 2} [0, 1, 2, 3]",
     "[p{4}, r{2}, 16] root[r{8}, 16; outer_split(0, 4)] mesh M0 outer_split(0, 2) parallelize(0, DIDy) "
     "parallelize(1, DIDx)",
     ""},
    {"{tp: tp} []", "[p{tp}, r{ceilDiv(8, tp)}, 16] root[r{8}, 16; outer_split(0, tp)] mesh M0 parallelize(0, DIDx)",
     ""},
    {"{x: 2} [0, 1]", "[r{8}, 16] mesh M0", ""},
    {"{x: 2} [0, 1]", "[p{2}, r{4}, 16] root[r{8}, 16; outer_split(0, 2)] mesh M0",
     "dim 0 of T1[p{2}, r{4}, 16] is a part of a reduced dim and bound to no axis"},
    {"{x: 2} [0, 1]", "[p{2}, r{4}, 16] root[r{8}, 16; outer_split(0, 2)]", "bound to no axis"},
    {"{x: 2} [0, 1]",
     "[p{4}, r{2}, 16] root[r{8}, 16; outer_split(0, 4)] mesh M0 outer_split(0, 2) parallelize(0, DIDx)",
     "counts 4 contributions, the axes x that own it have 2 ranks"},
};

TEST(Contributions, EachRankHasOne) {
  for (const Case& c : kCases) {
    const auto fusion = parseFusion(std::string("fusion {\n  mesh M0 ") + c.mesh +
                                    "\n  T0 = input() : Float[8, 16] contiguity[t, t] mesh M0\n"
                                    "  T1 = reduce(T0, op=sum) : Float" +
                                    c.result + "\n  output T1\n}\n");
    const std::string wrong = wrongContributions(fusion->outputs()[0]->asTensor());
    EXPECT_EQ(wrong.empty(), *c.message == '\0') << c.result << "\n" << wrong;
    EXPECT_NE(wrong.find(c.message), std::string::npos) << c.result << "\n" << wrong;
  }
}

}  // namespace
}  // namespace meshfuse
