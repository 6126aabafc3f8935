// The table of README.md names tests that exist, and all of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace meshfuse {
namespace {

const std::string kFolder = MESHFUSE_SOURCE_DIR "/tests/nvfuser_shape/";

std::string textOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> portsOfThisFolder() {
  const std::regex test(R"(TEST_F\((PortsOf\w+), (\w+)\))");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string text = entry.path().extension() == ".cpp" ? textOf(entry.path()) : "";
    for (std::sregex_iterator it(text.begin(), text.end(), test), end; it != end; ++it) {
      names.insert((*it)[1].str() + "." + (*it)[2].str());
    }
  }
  return names;
}

// Whether the table of reasons that follows "`outcome`" has this one. The table ends at the next empty line.
bool isListed(const std::string& text, const std::string& outcome, const std::string& reason) {
  const size_t begin = text.find("\n|", text.find("`" + outcome + "`"));
  const std::string reasons = text.substr(begin, text.find("\n\n", begin) - begin);
  return reasons.find("\n| " + reason + " | ") != std::string::npos;
}

TEST(TableOfPorts, NamesTestsThatExistAndAllOfThem) {
  const std::set<std::string> ports = portsOfThisFolder();
  const std::string text = textOf(kFolder + "README.md");
  const std::regex row(R"re(\n\| `([\w/]+\.\w*)` \| (\w+) \| ([^`|:]*)(: )?(`([^`|]+)`)? \|(?=\n))re");
  std::set<std::string> named;
  std::map<std::string, int64_t> counts;
  int64_t rows = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    rows++;
    const std::string outcome = (*it)[2];
    const std::string reason = (*it)[3];
    const std::string port = (*it)[6];
    counts[outcome]++;
    if (outcome == "ported") {
      EXPECT_EQ(reason, "") << (*it)[1];
    } else {
      EXPECT_TRUE(outcome == "refused" || outcome == "outside") << (*it)[1] << ": " << outcome;
      EXPECT_TRUE(isListed(text, outcome, reason)) << (*it)[1] << ": " << reason;
    }
    if (outcome != "outside" || !port.empty()) {
      EXPECT_TRUE(ports.contains(port)) << "README.md names " << port << " for " << (*it)[1];
      named.insert(port);
    }
  }
  const std::regex begin(R"re(\n\| `[\w/]+\.)re");
  EXPECT_EQ(rows, std::distance(std::sregex_iterator(text.begin(), text.end(), begin), std::sregex_iterator()))
      << "every row has a test's name, an outcome and a reason";
  EXPECT_EQ(named, ports) << "every port has a row";
  EXPECT_GT(counts["ported"], 70);
  EXPECT_LE(10 * counts["refused"], counts["ported"] + counts["refused"])
      << "at most a tenth of nvFuser's tests is refused";
}

}  // namespace
}  // namespace meshfuse
