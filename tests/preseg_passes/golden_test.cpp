// The golden programs of the passes (programs/golden.h), and of the changes of stage around them. For concretize the input ends
// with a line `sizes: [6, 16] [4]`, for specialize with `sizes: dp=2 tp=4`.
#include "programs/golden.h"

#include <algorithm>
#include <sstream>

#include "analysis/pass_context.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/specialize.h"
#include "preseg_passes/table.h"

namespace meshfuse {
namespace {

constexpr std::string_view kStage = "preseg_passes";

TEST(Golden, EveryPassOfTheTable) {
  for (const PassRow<Fusion, PassContext>& row : presegPasses()) {
    SCOPED_TRACE(row.name);
    runGolden(kStage, row.name, [&](const std::string& input) {
      std::unique_ptr<Fusion> fusion = parseFusion(input);
      PassContext context(*fusion);
      std::string after = runCheckedPass(row, *fusion, context, [&] { return fusion->toString(); });
      for (const std::string& remark : context.remarks()) {
        after += "# remark: " + remark + "\n";
      }
      for (const auto& [id, reason] : context.reasons()) {
        after += fmt::format("# T{}: {}\n", id, reason);
      }
      return after;
    });
  }
}

TEST(Golden, Concretize) {
  runGolden(kStage, "concretize", [](const std::string& input) {
    const size_t at = input.find("sizes:");
    std::vector<std::vector<int64_t>> sizes;
    std::istringstream in(input.substr(at + 6));
    for (std::string word; in >> word;) {
      if (word[0] == '[') {
        sizes.emplace_back();
      }
      std::erase_if(word, [](char c) { return c == '[' || c == ']' || c == ','; });
      if (!word.empty()) {
        sizes.back().push_back(std::stoll(word));
      }
    }
    return concretize(*parseFusion(input.substr(0, at)), sizes)->toString();
  });
}

TEST(Golden, Specialize) {
  runGolden(kStage, "specialize", [](const std::string& input) {
    const size_t at = input.find("sizes:");
    MeshSizes sizes;
    std::istringstream in(input.substr(at + 6));
    for (std::string word; in >> word;) {
      const size_t equals = word.find('=');
      sizes[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
    }
    return specialize(*parseFusion(input.substr(0, at)), sizes)->toString();
  });
}

TEST(Table, TheOrderOfPasses) {
  EXPECT_EQ(
      printPasses(presegPasses()),
      "check-annotations: first: all other passes rely on parts that are rectangles\n"
      "fold-windows: before shardings propagate: they would also reach the tensor between pad and slice\n"
      "privatize-casts: before shardings propagate: each use of a cast may then get its own sharding\n"
      "propagate-shardings: needs the final graph; all later passes read shardings\n"
      "split-scans: needs final shardings of both ends of a scan; before reshards: they would gather the dim\n"
      "merge-top-k: needs final shardings; before partialize-reductions, which sums the positions that it takes from "
      "the blocks\n"
      "insert-bounds-checks: a check gets the sharding of its index; before tables are cut, because it needs their "
      "whole extents\n"
      "partialize-reductions: before reshards: a sum over a sharded dim must not gather its operand\n"
      "decompose-reshardings: when all shardings are final; afterwards only Redistribute communicates\n"
      "optimize-reshards: needs each reshard as an op of its own, without a plan: it moves, joins and splits them\n"
      "combine-variance: after optimize-reshards: it replaces only all-reduces that optimize-reshards left whole\n"
      "remove-unneeded-sets: after reshards are ops of their own: a copy that only holds an annotation would cost "
      "a kernel\n"
      "plan-redistributions: when no sharding changes any more: the steps follow from the shardings\n"
      "pack-redistributions: last: it compares the steps of plans, and no later pass may separate the ops that it "
      "packs\n");
}

}  // namespace
}  // namespace meshfuse
