// The golden programs of the passes over a local fusion (programs/golden.h). Layouts of inputs stand after the program as the
// dump writes them, `# T0 strides [1, 4] alignment 64`; `# no library` refuses every contraction, `# small caches` hold 128 bytes. What a
// pass makes of a program computes the same.
#include "programs/golden.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "interpret/bounds.h"
#include "segment/local_context.h"
#include "segment/table.h"

namespace meshfuse {
namespace {

using Refusal = std::optional<std::string>;

Refusal refuseAll(const Expr&, const std::map<int64_t, Layout>&) { return "there is no library"; }

Refusal refuseWithoutUnitStride(const Expr&, const std::map<int64_t, Layout>& layouts) {
  const bool unitStride =
      std::ranges::all_of(layouts, [](const auto& l) { return std::ranges::count(l.second.strides, 1) > 0; });
  return unitStride ? std::nullopt : Refusal("no stride is 1");
}

LocalContext contextOf(const std::string& input) {
  LocalContext context;
  const bool library = input.find("# no library\n") == std::string::npos;
  context.device.refuseContraction = library ? refuseWithoutUnitStride : refuseAll;
  if (input.find("# small caches\n") != std::string::npos) {
    context.device.l2Bytes = context.device.lastCacheBytes = 128;
  }
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# T")) {
      continue;
    }
    std::ranges::replace_if(
        line, [](char c) { return c == '[' || c == ']' || c == ','; }, ' ');
    std::istringstream words(line.substr(3));
    int64_t id = 0;
    std::string word;
    words >> id >> word;
    Layout& layout = context.layouts[id];
    for (int64_t stride = 0; words >> stride;) {
      layout.strides.push_back(stride);
    }
    words.clear();
    words >> word >> layout.alignment;
    if (words >> word && word == "view") {
      context.views.insert(id);
    }
  }
  return context;
}

std::vector<Argument> randomArguments(const Fusion& fusion) {
  std::vector<Argument> arguments;
  for (const Val* in : fusion.inputs()) {
    if (!in->isTensor()) {
      arguments.emplace_back(0.5);
      continue;
    }
    std::vector<int64_t> sizes;
    for (const IntExpr& e : in->asTensor()->shape()) {
      sizes.push_back(e.evaluate([](std::string_view) { return 5; }));
    }
    arguments.emplace_back(randomTensor(sizes, in->dtype(), static_cast<uint64_t>(in->id()), -2, 2));
  }
  return arguments;
}

void expectSameResults(const Fusion& before, const Fusion& after) {
  const std::vector<Argument> arguments = randomArguments(before);
  const std::vector<BoundedTensor> expected = interpretWithBounds(before, arguments);
  const std::vector<BoundedTensor> got = interpretWithBounds(after, arguments);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); i++) {
    EXPECT_EQ(compare(got[i].value, expected[i]), std::nullopt);
  }
}

bool communicates(const Fusion& fusion) {
  return std::ranges::any_of(fusion.exprs(), [](const Expr* e) { return e->kind() == ExprKind::Communicate; });
}

TEST(Golden, EveryPassOfTheTable) {
  for (const PassRow<Fusion, LocalContext>& row : localPasses()) {
    SCOPED_TRACE(row.name);
    runGolden("segment", row.name, [&](const std::string& input) {
      std::unique_ptr<Fusion> fusion = parseFusion(input);
      EXPECT_EQ(verify(*fusion), std::vector<std::string>{});
      const std::unique_ptr<Fusion> before = fusion->clone();
      LocalContext context = contextOf(input);
      std::string after = runCheckedPass(row, *fusion, context, [&] { return toText(*fusion, context); });
      if (!communicates(*before)) {
        expectSameResults(*before, *fusion);
      }
      for (const std::string& remark : context.remarks) {
        after += "# remark: " + remark + "\n";
      }
      return after;
    });
  }
}

TEST(Table, TheOrderOfPasses) {
  EXPECT_EQ(
      printPasses(localPasses()),
      "fold-scalars: first: ops that later passes copy then read a constant instead of a scalar op\n"
      "memory-orders: while library calls are still the ops that the user wrote; the layouts that it adds may need "
      "copies\n"
      "contiguous-operands: needs layouts of inputs and results; later passes treat its copies like other ops\n"
      "decompose-contractions: before cheap ops are duplicated, because it adds some; afterwards every contraction "
      "is a library call\n"
      "recompute-large: when all ops that kernels compute exist; the broadcasts that its copies read too are "
      "duplicated "
      "next\n"
      "duplicate-cheap: when all ops that kernels compute exist\n"
      "fold-transposes: last: a permute becomes a view only if all its readers are library calls that accept the "
      "view\n");
}

}  // namespace
}  // namespace meshfuse
