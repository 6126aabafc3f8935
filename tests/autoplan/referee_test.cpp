// CBC, a solver of integer programs, as the referee of searchPlan() on whole models; skipped where the program `cbc` is absent.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "autoplan/programs.h"
#include "autoplan/search.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {
namespace {

constexpr double kScale = 1e6;       // the referee gets microseconds
constexpr double kTolerance = 1e-5;  // of CBC's optimum

// In CPLEX's LP format: x<node>_<choice> is 1 if the node has the choice, y<pair>_<row>_<column> if both nodes of a pair have theirs.
class IntegerProgram {
 public:
  IntegerProgram(const PlanGraph& graph, double memory) : graph_(graph), memory_(memory) {}

  std::string text() {
    writeChoices();
    writePairs();
    writeMemory();
    std::string bounds;
    for (const std::string& name : forbidden_) {
      bounds += fmt::format(" {} = 0\n", name);
    }
    return fmt::format("Minimize\n obj: {}\nSubject To\n{}Bounds\n{}Binaries\n{}End\n", objective_.str(),
                       constraints_.str(), bounds, binaries_.str());
  }

 private:
  static std::string x(int64_t node, int64_t choice) { return fmt::format("x{}_{}", node, choice); }
  static std::string y(int64_t pair, int64_t row, int64_t column) {
    return fmt::format("y{}_{}_{}", pair, row, column);
  }

  void addCost(double seconds, const std::string& name) {
    if (!std::isfinite(seconds)) {
      forbidden_.push_back(name);
    } else if (seconds != 0) {
      objective_ << fmt::format(" + {:.12g} {}\n", seconds * kScale, name);
    }
  }

  void writeChoices() {
    for (const int64_t node : indices(graph_.nodes)) {
      std::string sum;
      for (const int64_t c : indices(graph_.costs.costs[node])) {
        addCost(graph_.costs.costs[node][c], x(node, c));
        sum += " + " + x(node, c);
        binaries_ << " " << x(node, c) << "\n";
      }
      constraints_ << sum << " = 1\n";
    }
  }

  void writePairs() {
    for (const int64_t pair : indices(graph_.costs.pairs)) {
      const auto& [first, second, table] = graph_.costs.pairs[pair];
      pairOf_[{first, second}] = pair;
      for (int64_t row = 0; row < table->rows; row++) {
        std::string sum;
        for (int64_t column = 0; column < table->columns; column++) {
          addCost(table->at(row, column), y(pair, row, column));
          sum += " + " + y(pair, row, column);
        }
        constraints_ << sum << " - " << x(first, row) << " = 0\n";
      }
      for (int64_t column = 0; column < table->columns; column++) {
        std::string sum;
        for (int64_t row = 0; row < table->rows; row++) {
          sum += " + " + y(pair, row, column);
        }
        constraints_ << sum << " - " << x(second, column) << " = 0\n";
      }
    }
  }

  // Parts of the limit.
  void writeMemory() {
    for (int64_t step = 0; step < graph_.steps; step++) {
      std::map<std::string, double> parts;
      for (const int64_t node : indices(graph_.nodes)) {
        for (const StoredTensor& t : graph_.nodes[node].stored) {
          for (int64_t c = 0; t.firstStep <= step && step <= t.lastStep && c < std::ssize(graph_.nodes[node].elements);
               c++) {
            parts[x(node, c)] += graph_.nodes[node].elements[c] * static_cast<double>(t.size) / memory_;
          }
        }
      }
      for (const PlanEdge& edge : graph_.edges) {
        const PairTable& copied = edge.tables->copied;
        const auto forward = pairOf_.find({edge.from, edge.to});
        const auto pair = forward != pairOf_.end() ? forward : pairOf_.find({edge.to, edge.from});
        for (int64_t row = 0; edge.step == step && row < copied.rows; row++) {
          for (int64_t column = 0; column < copied.columns; column++) {
            if (copied.at(row, column) > 0) {
              parts[pair == forward ? y(pair->second, row, column) : y(pair->second, column, row)] +=
                  copied.at(row, column) / memory_;
            }
          }
        }
      }
      for (const auto& [name, part] : parts) {
        constraints_ << fmt::format(" + {:.12g} {}\n", part, name);
      }
      if (!parts.empty()) {
        constraints_ << " <= 1\n";
      }
    }
  }

  const PlanGraph& graph_;
  const double memory_;
  std::ostringstream objective_;
  std::ostringstream constraints_;
  std::ostringstream binaries_;
  std::vector<std::string> forbidden_;
  std::map<std::pair<int64_t, int64_t>, int64_t> pairOf_;
};

// Seconds of the optimum; infinity if there is none.
double optimumOf(const PlanGraph& graph, double memory) {
  std::string folder = (std::filesystem::temp_directory_path() / "meshfuse_referee_XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/plan.lp") << IntegerProgram(graph, memory).text();
  const std::string command =
      fmt::format("cbc {0}/plan.lp ratioGap 0 allowableGap 0 solve solution {0}/out.txt >/dev/null 2>&1", folder);
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream file(folder + "/out.txt");
  std::string status;
  std::getline(file, status);
  std::filesystem::remove_all(folder);
  const std::string words = "objective value";
  if (!status.starts_with("Optimal")) {
    EXPECT_TRUE(status.starts_with("Infeasible") || status.starts_with("Integer infeasible")) << status;
    return std::numeric_limits<double>::infinity();
  }
  return std::stod(status.substr(status.find(words) + words.size())) / kScale;
}

class Referee : public testing::TestWithParam<ProgramOfSearch> {};

TEST_P(Referee, FindsNoFasterPlan) {
  if (std::system("command -v cbc >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no cbc";
  }
  const std::unique_ptr<Fusion> fusion = GetParam().build();
  const DistributedConfig machines{.devicesPerMachine = 4,
                                   .within = {.bandwidth = 1e9, .latency = 1e-6},
                                   .device = {.flops = 1e9, .flops16 = 1e9, .bandwidth = 1e9, .launch = 1e-6}};
  const PlanGraph graph = planGraph(*fusion, machines, DeviceMesh::createForShape({4}), Division::Even);
  const Deadline never = Deadline::max();
  const double peak = searchPlan(graph, 1e30, never)->peak;
  for (const double part : {2.0, 0.9, 0.7}) {
    const double memory = part * peak;
    const double optimum = optimumOf(graph, memory);
    const std::optional<FoundPlan> found = searchPlan(graph, memory, never);
    ASSERT_EQ(found.has_value(), std::isfinite(optimum)) << part;
    if (found) {
      EXPECT_LE(found->bound, optimum * (1 + kTolerance)) << part;
      EXPECT_LE(optimum, found->seconds * (1 + kTolerance)) << part;
      if (std::ssize(graph.nodes) <= kSmallGraph) {
        EXPECT_LE(found->seconds, optimum * (1 + kEnoughGap + kTolerance)) << part;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Referee, testing::ValuesIn(plannedPrograms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshfuse
