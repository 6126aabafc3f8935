// What the documents say is so: the example compiles and is right, the folders, files and tests they name exist.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include "docs/document.h"
#include "docs/readme_example.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {
namespace {

TEST(Readme, ExampleIsTheOneThatIsCompiled) {
  const std::string shown = between(fileText(kRoot + "README.md"), "```cpp\n", "```");
  const std::string compiled = between(fileText(kRoot + "tests/docs/readme_example.cpp"), "// [example]\n", "// [end]");
  EXPECT_EQ(shown, compiled);
}

TEST(Readme, EveryBlockOfCodeIsCompiled) {
  const std::string text = fileText(kRoot + "README.md");
  const size_t example = text.find("```cpp\n");
  EXPECT_EQ(text.find("```cpp\n", example + 1), std::string::npos)
      << "a second example needs a test such as the one above";
  // of a project outside: tests/consumer, which test_tools builds
  std::istringstream lines(between(text, "```cmake\n", "```"));
  const std::string project = fileText(kRoot + "tests/consumer/CMakeLists.txt");
  for (std::string line; std::getline(lines, line);) {
    line = std::regex_replace(line.substr(0, line.find("  #")), std::regex("\\(app "), "(consumer ");
    EXPECT_NE(project.find(line), std::string::npos) << line;
  }
}

TEST(Readme, ExampleGivesTheSameOnOneAndOnFourRanks) {
  const Tensor x = randomTensor({3, 8}, DataType::Float, 1);
  const Tensor w0 = randomTensor({16, 8}, DataType::Float, 2);
  const Tensor w1 = randomTensor({8, 16}, DataType::Float, 3);
  auto gelu = [](double v) { return v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) / 2; };
  for (int ranks : {1, 4}) {
    runLoopback(ranks, [&](Communicator& world) {
      const Tensor y = mlp(world, x, w0, w1);
      for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 8; j++) {
          double sum = 0;
          for (int64_t h = 0; h < 16; h++) {
            double inner = 0;
            for (int64_t k = 0; k < 8; k++) {
              inner += x.at({i, k}) * w0.at({h, k});
            }
            sum += gelu(inner) * w1.at({j, h});
          }
          ASSERT_NEAR(y.at({i, j}), sum, 1e-4) << ranks << " ranks, rank " << world.rank();
        }
      }
    });
  }
}

// Files and folders between backquotes that begin with a folder of this repository.
TEST(Docs, NamesOfFilesExist) {
  const std::regex name("`((?:csrc|tests|docs|tools|runtime|benchmarks|examples|cmake)/[A-Za-z0-9_/.]*)`");
  std::vector<std::string> documents = {"README.md", "examples/README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "docs")) {
    documents.push_back("docs/" + entry.path().filename().string());
  }
  EXPECT_GT(documents.size(), 8u);
  for (const std::string& document : documents) {
    const std::string text = fileText(kRoot + document);
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
      EXPECT_TRUE(std::filesystem::exists(kRoot + (*it)[1].str())) << document << " names " << (*it)[1];
    }
  }
}

// All tests of the tree, as Suite.Name.
std::set<std::string> allTests() {
  const std::regex test(R"(TEST(?:_F|_P)?\((\w+), (\w+)\))");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "tests")) {
    if (entry.path().extension() == ".cpp") {
      const std::string text = fileText(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), test), end; it != end; ++it) {
        names.insert((*it)[1].str() + "." + (*it)[2].str());
      }
    }
  }
  return names;
}

TEST(Docs, EveryPatternHasItsTest) {
  const std::set<std::string> tests = allTests();
  const std::regex row(R"(`([A-Z]\w+\.[A-Z]\w+)`)");
  const std::string text = fileText(kRoot + "docs/patterns.md");
  int rows = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    EXPECT_TRUE(tests.contains((*it)[1])) << "docs/patterns.md names " << (*it)[1];
    rows++;
  }
  EXPECT_GT(rows, 30);
}

TEST(Docs, EveryFolderOfSourcesHasAGuideOfAtMostSixtyLines) {
  std::set<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "csrc")) {
    if (entry.path().extension() == ".cpp") {
      folders.insert(entry.path().parent_path());
    }
  }
  EXPECT_GT(folders.size(), 20u);
  for (const std::filesystem::path& folder : folders) {
    const std::string text = fileText(folder / "README.md");
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60) << folder;
  }
}

TEST(Docs, EveryGuideOfAFolderHasInvariantsAndAReadingOrder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "csrc")) {
    if (entry.is_directory()) {
      const std::string text = fileText(entry.path() / "README.md");
      for (const char* part : {"nvariants", "eading order", "nput", "utput"}) {
        EXPECT_NE(text.find(part), std::string::npos) << entry.path() << " has no " << part;
      }
    }
  }
}

// Each form of a sharding that docs/sharding.md explains is how one is printed, and holds the elements it says.
TEST(Docs, ShardingsAreWrittenAsExplained) {
  const std::string text = fileText(kRoot + "docs/sharding.md");
  const DeviceMesh x = DeviceMesh::createForNumDevices(4);
  const DeviceMesh ab = DeviceMesh::create({{"a", 2}, {"b", 4}});
  auto bind = [](TensorView* tv, int axis, ParallelType type) { tv->axis(axis)->parallelize(type); };
  struct Row {
    const char* word;
    const DeviceMesh& mesh;
    int64_t size;
    std::function<void(TensorView*)> cut;
    int64_t rank;
    std::vector<double> held;
  };
  const Row rows[] = {
      {"R", x, 4, [](TensorView*) {}, 2, {0, 1, 2, 3}},
      {"S0(x)", x, 8, [&](TensorView* tv) { bind(tv->outer_split(0, 4), 0, ParallelType::DIDx); }, 1, {2, 3}},
      {"S0(b,a)",
       ab,
       24,
       [&](TensorView* tv) {
         bind(tv->outer_split(0, 4), 0, ParallelType::DIDx);
         bind(tv->outer_split(1, 2), 1, ParallelType::DIDy);
       },
       1,
       {6, 7, 8}},
      {"S0(4:b 3 2:a)",
       ab,
       24,
       [&](TensorView* tv) {
         bind(tv->inner_split(0, 2), 1, ParallelType::DIDy);
         bind(tv->outer_split(0, 4), 0, ParallelType::DIDx);
       },
       1,
       {6, 8, 10}},
      {"S0(12 2:a)",
       ab,
       24,
       [&](TensorView* tv) { bind(tv->inner_split(0, 2), 1, ParallelType::DIDy); },
       4,
       {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.word);
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* tv = makeContigConcreteTensor({row.size});
    tv->setDeviceMesh(row.mesh);
    row.cut(tv);
    EXPECT_NE(text.find(std::string("`") + row.word + "`"), std::string::npos);
    EXPECT_EQ(shardState(tv).toString(), row.word + (" on " + row.mesh.toString()));
    std::vector<double> all;
    for (int64_t i = 0; i < row.size; i++) {
      all.push_back(static_cast<double>(i));
    }
    const Tensor part = shardTensor(Tensor::of(all, {row.size}), tv, row.rank);
    ASSERT_EQ(part.numel(), std::ssize(row.held));
    for (int64_t i = 0; i < part.numel(); i++) {
      EXPECT_EQ(part.at({i}), row.held[i]);
    }
  }
  ShardState part = ShardState::replicated(DeviceMesh::createForNumDevices(6), {2});
  part.dims[0] = DigitList(std::vector<Digit>{{0, 1, 2, Owner::device(0, 3)}});
  EXPECT_EQ(part.toString(), "S0(2:x/3) on {x: 6}[0, 1, 2, 3, 4, 5]");
  EXPECT_NE(text.find("`S0(2:x/3)`"), std::string::npos);
}

TEST(Docs, GlossaryHasAtMostFortyWords) {
  const std::string glossary = between(fileText(kRoot + "README.md") + "\n## ", "## Glossary\n", "\n## ");
  const int64_t entries = std::count(glossary.begin(), glossary.end(), '\n') - 3;  // empty line, head, rule
  EXPECT_GT(entries, 10);
  EXPECT_LE(entries, 40);
}

}  // namespace
}  // namespace meshfuse
