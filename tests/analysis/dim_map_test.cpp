#include "analysis/dim_map.h"

#include <gtest/gtest.h>

#include "ir/fusion.h"
#include "ir/text.h"
#include "programs/random_fusion.h"

namespace meshfuse {
namespace {

// `Same 0, None | Same, Indexed`: of the result's dims, then of the operand's.
std::string mapText(const Expr& e, int operand) {
  OperandDims dims = dimsRead(e, operand);
  std::string text;
  for (const DimLink& link : dims.ofConsumer) {
    text += text.empty() ? "" : ", ";
    text += name(link.how);
    text += link.producer >= 0 ? " " + std::to_string(link.producer) : "";
    text += link.how == DimRead::Window ? " at " + link.offset.toString() : "";
  }
  text += " |";
  for (const DimRead how : dims.ofProducer) {
    text += " ";
    text += name(how);
  }
  return text;
}

struct Case {
  const char* line;
  std::vector<const char*> maps;  // one an operand
};

const Case kCases[] = {
    {"T9 = set(T0) : Float[4, 6]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = add(T0, T6) : Float[4, 6]", {"Same 0, Same 1 | Same Same", "Stretched 0, Same 1 | Stretched Same"}},
    {"T9 = mul(T0, 2.0) : Float[4, 6]", {"Same 0, Same 1 | Same Same", "None, None |"}},
    {"T9 = broadcast(T1, flags=[t, f]) : Float[b{1}, 4]", {"None, Same 0 | Same"}},
    {"T9 = squeeze(T6, flags=[t, f]) : Float[6]", {"Same 1 | None Same"}},
    {"T9 = expand(T6) : Float[3, 6]", {"Stretched 0, Same 1 | Stretched Same"}},
    {"T9 = permute(T0, order=[1, 0]) : Float[6, 4]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = reshape(T0) : Float[24]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = slice(T0, starts=[1, 0], stops=[3, 6], steps=[1, 2]) : Float[2, 3]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = cat(T0, T6, T0, dim=0) : Float[9, 6]",
     {"Window 0 at 0, Same 1 | Window Same", "Window 0 at 4, Same 1 | Window Same",
      "Window 0 at 5, Same 1 | Window Same"}},
    {"T9 = reduce(T0, op=sum) : Float[r{4}, 6]", {"Reduced 0, Same 1 | Reduced Same"}},
    {"T9 = matmul(T0, T5) : Float[4, 5, r{6}]",
     {"Same 0, None, Reduced 1 | Same Reduced", "None, Same 1, Reduced 0 | Reduced Same"}},
    {"T9 = matmul(T7, T5) : Float[2, 4, 5, r{6}]",
     {"Same 0, Same 1, None, Reduced 2 | Same Same Reduced", "None, None, Same 1, Reduced 0 | Reduced Same"}},
    {"T9 = matmul(T1, T0) : Float[6, r{4}]", {"None, Reduced 0 | Reduced", "Same 1, Reduced 0 | Reduced Same"}},
    {"T9 = linear(T7, T0, T1) : Float[2, 4, 4, r{6}]",
     {"Same 0, Same 1, None, Reduced 2 | Same Same Reduced", "None, None, Same 0, Reduced 1 | Same Reduced",
      "None, None, Same 0, None | Same"}},
    {"T9 = full(1.0) : Float[4]", {"None |"}},
    {"T9 = take_along_axis(T0, T2, dim=1) : Float[4, 6]",
     {"Same 0, None | Same Indexed", "Same 0, Same 1 | Same Same"}},
    {"T9 = gather(T0, T3, dim=1) : Float[3, 2]",
     {"Window 0 at 0, None | Window Indexed", "Same 0, Same 1 | Same Same"}},
    {"T9 = index_select(T0, T4, dim=0) : Float[2, 6]", {"None, Same 1 | Indexed Same", "Same 0, None | Same"}},
    {"T9 = embedding(T2, T5, starts=[0], flags=[f]) : Float[4, 6, 5]",
     {"Same 0, Same 1, None | Same Same", "None, None, Same 1 | Indexed Same"}},
    {"T9 = redistribute(T0, op=sum, dim=0) : Float[r{4}, 6]", {"Reduced 0, Same 1 | Reduced Same"}},
    {"T9 = communicate(T0, kind=all_gather, mesh=M0, axes=[0]) : Float[2, 4, 6]", {"None, Same 0, Same 1 | Same Same"}},
    {"T9 = communicate(T8, kind=reduce_scatter, mesh=M0, axes=[0], op=sum) : Float[6]", {"Same 1 | Whole Same"}},
    {"T9 = communicate(T8, kind=all_to_all, mesh=M0, axes=[0]) : Float[2, 6]", {"Whole 0, Same 1 | Whole Same"}},
};

TEST(DimMap, TableByKind) {
  for (const Case& c : kCases) {
    std::string text = std::string(R"(fusion {
      mesh M0 {x: 2} [0, 1]
      T0 = input() : Float[4, 6]
      T1 = input() : Float[4]
      T2 = input() : Int[4, 6]
      T3 = input() : Int[3, 2]
      T4 = input() : Int[2]
      T5 = input() : Float[6, 5]
      T6 = input() : Float[b{1}, 6]
      T7 = input() : Float[2, 4, 6]
      T8 = input() : Float[2, 6]
      )") + c.line + "\n  output T9\n}";
    std::unique_ptr<Fusion> f = parseFusion(text);
    ASSERT_TRUE(verify(*f).empty()) << c.line << "\n" << verify(*f)[0];
    const Expr* e = f->outputs()[0]->definition();
    ASSERT_EQ(e->inputs().size(), c.maps.size());
    for (size_t k = 0; k < c.maps.size(); k++) {
      EXPECT_EQ(mapText(*e, static_cast<int>(k)), c.maps[k]) << c.line << ", operand " << k;
    }
  }
}

TEST(DimMap, LinkedDimsHaveFittingExtents) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    std::unique_ptr<Fusion> f = randomFusion(seed, {.transforms = false});
    for (const Expr* e : f->exprs()) {
      for (const IdLink& link : idLinks(*e)) {
        bool equal = link.producer->extent() == link.consumer->extent();
        bool shorter = provenLessEqual(link.producer->extent() + link.offset, link.consumer->extent());
        ASSERT_TRUE(link.how == DimRead::Stretched ? link.producer->isBroadcast()
                    : link.how == DimRead::Window
                        ? shorter || provenLessEqual(link.consumer->extent(), link.producer->extent())
                        : equal || link.producer->isBroadcast())
            << e->opName() << " in\n"
            << f->toString();
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
