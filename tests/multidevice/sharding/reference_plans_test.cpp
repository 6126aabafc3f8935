// Plans cost no more than those an independent planner found for 2,000 pairs; reference_plans.txt says how it is written.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/random_pair.h"

namespace meshfuse {
namespace {

std::vector<std::string> fieldsOf(const std::string& line, const std::string& separator) {
  std::vector<std::string> fields;
  size_t at = 0;
  for (size_t end = line.find(separator); end != std::string::npos; end = line.find(separator, at)) {
    fields.push_back(line.substr(at, end - at));
    at = end + separator.size();
  }
  fields.push_back(line.substr(at));
  return fields;
}

std::vector<std::string> wordsOf(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string w; in >> w;) {
    words.push_back(w);
  }
  return words;
}

DigitList dimOf(const DeviceMesh& mesh, int dim, int64_t extent, const std::string& text) {
  std::vector<Digit> owned;
  for (const std::string& word : wordsOf(text)) {  // size/stride or size/stride:axis
    const size_t colon = word.find(':');
    if (colon != std::string::npos) {
      const size_t slash = word.find('/');
      owned.push_back({dim, std::stoll(word.substr(slash + 1)), std::stoll(word),
                       Owner::device(mesh.axisOf(mesh.axis(word.substr(colon + 1))))});
    }
  }
  return fillRagged(dim, extent, owned);
}

ShardState stateOf(const DeviceMesh& mesh, const std::vector<int64_t>& extents, const std::string& text) {
  ShardState state{mesh, {}, {}};
  const std::vector<std::string> parts = fieldsOf(text, " +");
  const std::vector<std::string> dims = fieldsOf(parts[0], ", ");
  for (size_t k = 0; k < dims.size(); k++) {
    state.dims.push_back(dimOf(mesh, static_cast<int>(k), extents[k], dims[k]));
  }
  for (char c : parts.size() > 1 ? parts[1] : "") {
    state.partial.push_back(mesh.axisOf(mesh.axis(std::string(1, c))));
  }
  return state;
}

TEST(ReferencePlans, NoneIsCheaper) {
  std::ifstream file(MESHFUSE_SOURCE_DIR "/tests/multidevice/sharding/reference_plans.txt");
  ASSERT_TRUE(file.is_open());
  int pairs = 0;
  int longer = 0;
  int cheaper = 0;
  int withoutChain = 0;
  double theirs = 0;
  double ours = 0;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#") || number++ % kShareOfPairs != 0) {
      continue;
    }
    const std::vector<std::string> fields = fieldsOf(line, "; ");
    ASSERT_EQ(fields.size(), 8u) << line;
    std::vector<DeviceMesh::Axis> axes;
    for (const std::string& axis : wordsOf(fields[0])) {
      axes.emplace_back(axis.substr(0, 1), std::stoll(axis.substr(1)));
    }
    const DeviceMesh mesh = DeviceMesh::create(axes);
    std::vector<int64_t> extents;
    for (const std::string& e : wordsOf(fields[1])) {
      extents.push_back(std::stoll(e));
    }
    const ShardState from = stateOf(mesh, extents, fields[2]);
    const ShardState to = stateOf(mesh, extents, fields[3]);
    PlanOptions options;
    options.alpha = options.alphaPeer = std::stod(fields[4]);
    const std::vector<std::string> betas = fields[5] == "-" ? std::vector<std::string>{} : wordsOf(fields[5]);
    for (int axis = 0; axis < std::ssize(betas); axis++) {
      options.beta[mesh.axisName(axis)] = std::stod(betas[axis]);
    }
    options.sums = PartialSums::Moved;
    options.direct = DirectChoice::Fallback;
    const RedistributionPlan plan = planRedistribution(from, to, options);
    ASSERT_NO_THROW(checkPlan(plan, from, to, plan.bound)) << line;
    pairs++;
    longer += std::stoi(fields[7]) >= 2 ? 1 : 0;
    if (fields[6] == "-") {
      withoutChain++;
      continue;
    }
    EXPECT_TRUE(plan.note.empty()) << line;
    const double cost = std::stod(fields[6]);
    EXPECT_LE(plan.cost, cost + 0.01) << line << "\n" << ::testing::PrintToString(plan.communications());
    cheaper += plan.cost < cost - 0.01 ? 1 : 0;
    theirs += cost;
    ours += plan.cost;
  }
  std::printf(
      "%d pairs, %d of them with two calls or more, %d without a chain; %d plans are cheaper, all together by %.2f%%\n",
      pairs, longer, withoutChain, cheaper, 100 * (theirs - ours) / theirs);
  EXPECT_GE(pairs, 2000 / kShareOfPairs);
  EXPECT_GE(longer, pairs * 3 / 10);
}

}  // namespace
}  // namespace meshfuse
