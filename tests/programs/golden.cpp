#include "programs/golden.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/error.h"

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

}  // namespace

void runGolden(std::string_view stage, std::string_view pass,
               const std::function<std::string(const std::string&)>& transform) {
  std::string file(pass);
  std::ranges::replace(file, '-', '_');
  const std::string path = fmt::format("{}/tests/{}/{}.fir", MESHFUSE_SOURCE_DIR, stage, file);
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << "missing golden " << path;
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
    std::ofstream(path) << updated;
  }
}

}  // namespace meshfuse
