// How many bytes scheduled kernels read and write, accesses counted one by one by the tile interpreter and the emulator:
// each tensor once where one sweep suffices, and never more often than the kernel sweeps over it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "ops/activation.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

using Tensors = std::vector<TensorView*>;
using Shape = std::vector<int64_t>;

struct Traffic {
  int64_t elements;   // of the first input that the result needs
  int64_t written;    // elements of the output
  int gpuSweeps = 1;  // over the first input
  int cpuSweeps = 1;
  std::vector<size_t> wholes = {};  // other inputs; the same number of elements is read
  DataType type = DataType::Float;  // of all tensors
  size_t gpuWorkspaces = 0;         // the sums of parts and a counter
  size_t cpuScratch = 0;            // a worker's own memory: a row that is kept, the sums of columns, a block
};

struct Case {
  std::string name;
  std::vector<Shape> shapes;
  ScheduledBatch::Build build;
  Traffic traffic;
};

std::vector<Case> cases() {
  auto softmaxRows = [](const Tensors& t) { return maybeCastOp(t[0]->dtype(), softmax(t[0], 1)); };
  auto layerNormRows = [](const Tensors& t) {
    return maybeCastOp(t[0]->dtype(), layer_norm(t[0], Shape{t[0]->shape()[1].constValue()}, t[1], t[2], 1e-5).output);
  };
  auto sumOf = [](Shape dims) { return [dims](const Tensors& t) { return sum(exp(t[0]), dims); }; };
  return {
      {"pointwise",
       {{64, 1000}, {64, 1000}},
       [](const auto& t) { return add(mul(t[0], t[1]), t[0]); },
       {.elements = 64000, .written = 64000, .wholes = {1}}},
      {"pointwise, half",
       {{64, 1000}},
       [](const auto& t) { return castOp(DataType::Half, mul(t[0], t[0])); },
       {.elements = 64000, .written = 64000, .type = DataType::Half}},
      {"broadcast rows",
       {{64, 1000}, {1000}},
       [](const auto& t) { return tanh_gelu(add(t[0], t[1])); },
       {.elements = 64000, .written = 64000}},
      {"broadcast columns",
       {{64, 1000}, {64, 1}},
       [](const auto& t) { return tanh_gelu(add(t[0], t[1])); },
       {.elements = 64000, .written = 64000}},
      {"permute of two",
       {{64, 200}},
       [](const auto& t) {
         return add(permute(t[0], {1, 0}), 1.0);
       },
       {.elements = 12800, .written = 12800}},
      {"permute of three",
       {{8, 10, 48}},
       [](const auto& t) {
         return add(permute(t[0], {2, 0, 1}), 1.0);
       },
       {.elements = 3840, .written = 3840}},
      {"slice",
       {{64, 100}},
       [](const auto& t) {
         return neg(slice(t[0], {1, 2}, {40, 33}));
       },
       {.elements = 39 * 31, .written = 39 * 31}},
      {"pad",
       {{64, 100}},
       [](const auto& t) {
         return neg(pad(t[0], {2, 3, 1, 0}, 7.0));
       },
       {.elements = 6400, .written = 65 * 105}},
      {"cat",
       {{64, 30}, {64, 30}},
       [](const auto& t) {
         return exp(cat({t[0], t[1]}, 1));
       },
       {.elements = 1920, .written = 3840, .wholes = {1}}},
      {"sum of short rows", {{9, 100}}, sumOf({1}), {.elements = 900, .written = 9}},
      {"sum of long rows", {{9, 5000}}, sumOf({1}), {.elements = 45000, .written = 9}},
      {"sum of columns", {{37, 1500}}, sumOf({0}), {.elements = 55500, .written = 1500, .cpuScratch = 1}},
      // rows of sums on three levels; on a GPU four parts
      {"sum of long columns",
       {{2000, 40}},
       sumOf({0}),
       {.elements = 80000, .written = 40, .gpuWorkspaces = 2, .cpuScratch = 3}},
      {"sum of both", {{100, 130}}, sumOf({0, 1}), {.elements = 13000, .written = 1}},
      {"softmax of short rows", {{5, 100}}, softmaxRows, {.elements = 500, .written = 500}},
      // a CPU keeps what it wrote of the row, and reads it for the last sweep
      {"softmax of long rows",
       {{5, 5000}},
       softmaxRows,
       {.elements = 25000, .written = 25000, .cpuSweeps = 2, .cpuScratch = 1}},
      {"softmax of long rows, bfloat16",
       {{5, 5000}},
       softmaxRows,
       {.elements = 25000, .written = 25000, .cpuSweeps = 2, .type = DataType::BFloat16, .cpuScratch = 1}},
      // no axis of a column's tile stays in registers
      {"softmax of columns",
       {{60, 33}},
       [](const auto& t) { return softmax(t[0], 0); },
       {.elements = 1980, .written = 1980, .gpuSweeps = 3, .cpuSweeps = 3}},
      {"layer_norm of short rows", {{64, 64}, {64}, {64}}, layerNormRows, {.elements = 4096, .written = 4096}},
      // mean, variance, result
      {"layer_norm of long rows",
       {{5, 1500}, {1500}, {1500}},
       layerNormRows,
       {.elements = 7500, .written = 7500, .cpuSweeps = 3}},
  };
}

int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// What one tensor's bytes are, as `who` counted them; inputs first, then the output.
void expectTraffic(const Case& c, const std::string& who, int sweeps, size_t scratch, const std::vector<int64_t>& read,
                   const std::vector<int64_t>& written) {
  SCOPED_TRACE(c.name + ", " + who);
  int64_t size = dataTypeSize(c.traffic.type);
  size_t inputs = c.shapes.size();
  ASSERT_EQ(read.size(), inputs + 1 + scratch);
  for (size_t i = 0; i < inputs; i++) {
    EXPECT_EQ(written[i], 0) << "input " << i;
    if (i == 0 || std::find(c.traffic.wholes.begin(), c.traffic.wholes.end(), i) != c.traffic.wholes.end()) {
      EXPECT_EQ(read[i], c.traffic.elements * sweeps * size) << "input " << i;
    } else {
      // a broadcast one is read at most once for each position of the result, and not less than once
      EXPECT_LE(read[i], c.traffic.written * size) << "input " << i;
      EXPECT_GE(read[i], product(c.shapes[i]) * size) << "input " << i;
    }
  }
  EXPECT_EQ(read[inputs], 0) << "output";
  EXPECT_EQ(written[inputs], c.traffic.written * size) << "output";
}

std::pair<std::vector<int64_t>, std::vector<int64_t>> bytes(const auto& tensors) {
  std::pair<std::vector<int64_t>, std::vector<int64_t>> all;
  for (const auto& t : tensors) {
    all.first.push_back(t.readBytes);
    all.second.push_back(t.writtenBytes);
  }
  return all;
}

ScheduledBatch batchOf(const std::vector<Case>& all) {
  ScheduledBatch batch;
  for (const Case& c : all) {
    batch.add(c.shapes, c.build, c.traffic.type);
  }
  return batch;
}

TEST(ScheduledTraffic, OfTheInterpreter) {
  std::vector<Case> all = cases();
  ScheduledBatch batch = batchOf(all);
  for (size_t i = 0; i < all.size(); i++) {
    const Traffic& expected = all[i].traffic;
    for (const auto& [who, device, sweeps, scratch] :
         {std::tuple{"GPU", DeviceInfo::hopper(), expected.gpuSweeps, expected.gpuWorkspaces},
          {"CPU", DeviceInfo{}, expected.cpuSweeps, expected.cpuScratch}}) {
      KernelCheck check = checkKernel(*batch.fusions[i], device, batch.cases[i].inputs);
      EXPECT_EQ(check.difference, "");
      auto [read, written] = bytes(check.traffic.tensors);
      expectTraffic(all[i], who, sweeps, scratch, read, written);
    }
  }
}

TEST(ScheduledTraffic, OfTheEmulator) {
  std::vector<Case> all = cases();
  ScheduledBatch batch = batchOf(all);
  std::vector<ScheduledVerdict> verdicts = runScheduled(batch.cases);
  for (size_t i = 0; i < all.size(); i++) {
    EXPECT_TRUE(verdicts[i].right()) << verdicts[i].describe();
    auto [read, written] = bytes(verdicts[i].result.tensors);
    expectTraffic(all[i], "emulator", all[i].traffic.gpuSweeps, all[i].traffic.gpuWorkspaces, read, written);
  }
}

// A load that the text has twice counts twice.
TEST(ScheduledTraffic, OfAKernelThatReadsTwice) {
  ScheduledBatch batch;
  batch.add({{64, 1000}}, [](const Tensors& t) { return neg(t[0]); });
  std::vector<Launch> again;
  std::vector<ScheduledVerdict> verdicts =
      runScheduled(batch.cases, DeviceInfo::hopper(), [](std::span<const Launch> launches) {
        std::vector<Launch> twice(launches.begin(), launches.end());
        std::string& text = twice[0].kernel.source.text;
        size_t load = text.find("loadVector<", text.find("//@ kernel"));
        size_t end = text.find(";", load) + 1;
        EXPECT_NE(load, std::string::npos);
        std::string statement = text.substr(load, end - load);
        text.replace(load, statement.size(), "{ " + statement + " " + statement + " }");
        return run(twice);
      });
  EXPECT_TRUE(verdicts[0].right()) << verdicts[0].describe();
  EXPECT_EQ(verdicts[0].result.tensors[0].readBytes, 2 * 64000 * 4) << verdicts[0].describe();
}

}  // namespace
}  // namespace meshfuse::simt
