// Golden tests of the passes: tests/preseg_passes/<pass>.fir holds cases separated by `// ====`, each the input, a line `// ----`
// and the expected text. `error: text` expects a UserError that contains the text. For concretize the input ends with a line
// `sizes: [6, 16] [4]`. MESHFUSE_UPDATE_GOLDEN=1 rewrites the expectations.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/localize_fusion.h"
#include "preseg_passes/table.h"

namespace meshfuse {
namespace {

std::vector<std::string> splitAt(const std::string& text, const std::string& line) {
  std::vector<std::string> parts{""};
  std::istringstream in(text);
  for (std::string l; std::getline(in, l);) {
    if (l == line) {
      parts.emplace_back();
    } else {
      parts.back() += l + "\n";
    }
  }
  return parts;
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  size_t first = text.find_first_not_of(" \n");
  return first == std::string::npos ? "" : text.substr(first);
}

std::string goldenPath(const std::string& pass) {
  std::string file = pass;
  std::replace(file.begin(), file.end(), '-', '_');
  return std::string(MESHFUSE_SOURCE_DIR) + "/tests/preseg_passes/" + file + ".fir";
}

using Transform = std::function<std::string(const std::string& input)>;

void runGolden(const std::string& pass, const Transform& transform) {
  std::ifstream in(goldenPath(pass));
  ASSERT_TRUE(in.good()) << "missing golden " << goldenPath(pass);
  std::stringstream text;
  text << in.rdbuf();
  in.close();
  const bool update = std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr;
  std::string updated;
  for (const std::string& one : splitAt(text.str(), "// ====")) {
    std::vector<std::string> parts = splitAt(one, "// ----");
    std::string got;
    try {
      got = transform(parts[0]);
    } catch (const UserError& e) {
      got = std::string("error: ") + e.what();
    }
    updated += (updated.empty() ? "" : "// ====\n") + trimmed(parts[0]) + "\n// ----\n" + trimmed(got) + "\n";
    if (update) {
      continue;
    }
    ASSERT_EQ(parts.size(), 2u) << pass << ": a case without expectation";
    const std::string expected = trimmed(parts[1]);
    if (expected.starts_with("error: ")) {
      EXPECT_NE(got.find(expected.substr(7)), std::string::npos) << got;
    } else {
      EXPECT_EQ(trimmed(got), expected) << pass;
    }
  }
  if (update) {
    std::ofstream(goldenPath(pass)) << updated;
  }
}

TEST(Golden, EveryPassOfTheTable) {
  for (const PassRow<Fusion, PassContext>& row : presegPasses()) {
    SCOPED_TRACE(row.name);
    runGolden(std::string(row.name), [&](const std::string& input) {
      std::unique_ptr<Fusion> fusion = parseFusion(input);
      PassContext context(*fusion);
      const std::string before = fusion->toString();
      const bool changed = row.run(*fusion, context);
      const std::string after = fusion->toString();
      EXPECT_EQ(changed, before != after) << "a pass says whether it changed anything";
      EXPECT_FALSE(row.run(*fusion, context)) << "a pass is idempotent";
      EXPECT_EQ(fusion->toString(), after);
      EXPECT_EQ(verify(*fusion), std::vector<std::string>{});
      return after;
    });
  }
}

TEST(Golden, LocalizeFusion) {
  runGolden("localize_fusion", [](const std::string& input) { return localize(*parseFusion(input))->toString(); });
}

TEST(Golden, Concretize) {
  runGolden("concretize", [](const std::string& input) {
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

TEST(Table, TheOrderOfPasses) {
  EXPECT_EQ(printPasses(presegPasses()),
            "check-annotations: first: all others may rely on shardings being rectangles with even parts\n"
            "privatize-casts: before shardings spread: each use of a cast may then take its own\n"
            "propagate-shardings: needs the final graph; all that follows reads shardings\n"
            "partialize-reductions: before reshards: a sum over a sharded dim must not gather its operand\n"
            "decompose-reshardings: when all shardings are final; afterwards only Redistribute communicates\n"
            "remove-unneeded-sets: after the reshards stand alone: copies that only carried an annotation would cost "
            "kernels\n"
            "plan-redistributions: last: what each reshard costs is known when no sharding changes any more\n");
}

}  // namespace
}  // namespace meshfuse
