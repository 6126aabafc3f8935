// The table of README.md names tests that exist, and all of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
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

TEST(TableOfPorts, NamesTestsThatExistAndAllOfThem) {
  const std::set<std::string> outside = {"CUDA IPC", "multicast", "host program", "Stream"};
  const std::set<std::string> ports = portsOfThisFolder();
  const std::string text = textOf(kFolder + "README.md");
  const std::regex row(R"re(\n\| `([\w/]+\.\w*)` \| (in part|\w+) \| `?([^`|]+?)`? \|(?=\n))re");
  std::set<std::string> named;
  int64_t ported = 0;
  int64_t refused = 0;
  int64_t rows = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    rows++;
    const std::string outcome = (*it)[2];
    const std::string there = (*it)[3];
    if (outcome == "ported" || outcome == "in part") {
      EXPECT_TRUE(ports.contains(there)) << "README.md names " << there << " for " << (*it)[1];
      named.insert(there);
      ported++;
    } else if (outcome == "outside") {
      EXPECT_TRUE(outside.contains(there)) << (*it)[1] << ": " << there;
    } else {
      EXPECT_EQ(outcome, "refused") << (*it)[1];
      refused++;
    }
  }
  const std::regex begin(R"re(\n\| `[\w/]+\.)re");
  EXPECT_EQ(rows, std::distance(std::sregex_iterator(text.begin(), text.end(), begin), std::sregex_iterator()))
      << "every row has a test's name, an outcome and a reason";
  EXPECT_EQ(named, ports) << "every port has a row";
  EXPECT_GT(ported, 70);
  EXPECT_LE(10 * refused, ported + refused) << "at most a tenth of nvFuser's tests is refused";
}

}  // namespace
}  // namespace meshfuse
