// Scans in kernels with what they read and what reads them: the bits of segments, shared memory, sectors, registers, and planted faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "architectures.h"
#include "base/ranges.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "fuzz/random.h"
#include "ops/pointwise.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "sanitized.h"
#include "simt/scheduled/cubin_frame.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

using Tensors = std::vector<TensorView*>;

// A batch run with what each kernel wrote to its last slot.
struct WithOutputs {
  std::vector<ScheduledVerdict> verdicts;
  std::vector<std::vector<char>> outputs;
};
WithOutputs runKeeping(const std::vector<ScheduledCase>& cases, const std::vector<int64_t>& bytes,
                       const DeviceInfo& device = DeviceInfo::hopper()) {
  WithOutputs all;
  all.verdicts = runScheduled(cases, device, [&](std::span<const Launch> launches) {
    std::vector<Result> results = run(launches);
    for (size_t i = 0; i < launches.size(); i++) {
      const char* out = std::bit_cast<const char*>(launches[i].slots.back());
      all.outputs.emplace_back(out, out + bytes[i]);
    }
    return results;
  });
  return all;
}

// The total of segment i and of those before it of the same warp, after steps that double the distance.
double ofLanes(const std::vector<double>& segments, int64_t i, int64_t lanes, int64_t distance) {
  if (distance == 1) {
    return segments[i];
  }
  const double own = ofLanes(segments, i, lanes, distance / 2);
  return i % lanes < distance / 2 ? own : ofLanes(segments, i - distance / 2, lanes, distance / 2) + own;
}

// Rounded from the total before each segment of 16 elements, in Double, plus that of the segment so far, which is a `Own`. `lanes` segments
// are of a warp.
template <class Own>
std::vector<float> summedInSegments(const std::vector<double>& in, int64_t outer, int64_t extent, int64_t inner,
                                    int64_t lanes) {
  std::vector<float> out(in.size());
  for (int64_t line = 0; line < outer * inner; line++) {
    const auto at = [&](int64_t j) { return (line / inner * extent + j) * inner + line % inner; };
    std::vector<double> segments((extent + 16 * lanes - 1) / (16 * lanes) * lanes);
    for (int64_t first = 0; first < extent; first += 16) {
      Own own = 0;
      for (int64_t j = first; j < std::min(extent, first + 16); j++) {
        own += static_cast<Own>(in[at(j)]);
      }
      segments[first / 16] = own;
    }
    double before = 0;  // the warp
    Own own = 0;
    for (int64_t j = 0; j < extent; j++) {
      const int64_t segment = j / 16;
      if (j > 0 && j % (16 * lanes) == 0) {
        before += ofLanes(segments, segment - 1, lanes, lanes);
      }
      own = static_cast<Own>(in[at(j)]) + (j % 16 == 0 ? Own(0) : own);
      const double total = segment % lanes == 0 ? before : before + ofLanes(segments, segment - 1, lanes, lanes);
      out[at(j)] = static_cast<float>(static_cast<Own>(total) + own);
    }
  }
  return out;
}

// Of the axis that is scanned.
int64_t lanesOf(const tile::Program& p) {
  const tile::Value& scan = *std::ranges::find(p.values, tile::ValueKind::Scan, &tile::Value::kind);
  int64_t lanes = 1;
  for (const tile::Digit& d : p.spaces[scan.space].axes[scan.param].digits) {
    lanes *= d.level == tile::Level::Lane ? d.size.constValue() : 1;
  }
  return lanes;
}

struct Lines {
  std::vector<int64_t> shape;
  int64_t dim;
  int64_t product(size_t from, size_t to) const {
    int64_t n = 1;
    for (size_t d = from; d < to; d++) {
      n *= shape[d];
    }
    return n;
  }
};

// Lines of a part of a segment, of one tile and of several; a block's and more; along memory and across it.
const std::vector<Lines> kLines = {{{3, 2}, 1},     {{70, 17}, 1},     {{5, 1100}, 1}, {{1, 8192}, 1}, {{2, 9000}, 1},
                                   {{2, 20004}, 1}, {{1100, 24}, 1},   {{600, 3}, 0},  {{300, 40}, 0}, {{3, 130, 5}, 1},
                                   {{9000, 2}, 0},  {{2, 7, 1000}, 1}, {{40, 6, 2}, 1}};

// In memory cells of very different magnitudes, so that the order of additions shows.
TEST(ScheduledScan, SumsHaveTheBitsOfSegments) {
  ScheduledBatch b;
  std::vector<int64_t> bytes;
  for (const auto& [shape, dim] : kLines) {
    b.add({shape}, [dim = dim](const Tensors& t) { return cumsum(t[0], dim); });
    Tensor x = std::get<Tensor>(b.cases.back().inputs[0]);
    std::vector<double> values = x.toVector();
    for (size_t k = 0; k < values.size(); k++) {
      values[k] = static_cast<double>(static_cast<float>(std::ldexp(values[k], static_cast<int>(k * 7919 % 61) - 30)));
    }
    b.cases.back().inputs[0] = Tensor::of(values, shape, DataType::Float);
    bytes.push_back(x.numel() * 4);
  }
  for (const DeviceInfo& device : {DeviceInfo::hopper(), *DeviceInfo::ofArchitecture("sm_100")}) {
    const WithOutputs all = runKeeping(b.cases, bytes, device);
    for (size_t i = 0; i < kLines.size(); i++) {
      const Lines& l = kLines[i];
      EXPECT_TRUE(all.verdicts[i].right()) << all.verdicts[i].describe();
      EXPECT_EQ(all.verdicts[i].plan.kind, "scan");
      const std::vector<float> expected = summedInSegments<double>(
          std::get<Tensor>(b.cases[i].inputs[0]).toVector(), l.product(0, l.dim), l.shape[l.dim],
          l.product(l.dim + 1, l.shape.size()), lanesOf(all.verdicts[i].plan.program));
      std::vector<float> got(expected.size());
      std::memcpy(got.data(), all.outputs[i].data(), all.outputs[i].size());
      EXPECT_EQ(got, expected) << i;
    }
  }
}

// Where all that reads the sums rounds them to 16 bits, those of a segment are Float. Each is as far from the exact sum as 15 roundings of
// the elements of its segment, one of the total before it, and its own two allow: less than a sum of all elements in Float is.
TEST(ScheduledScan, CoarseSumsHaveTheBitsOfSegmentsInFloat) {
  ScheduledBatch b;
  std::vector<int64_t> bytes;
  for (const auto& [shape, dim] : kLines) {
    b.add(
        {shape},
        [dim = dim](const Tensors& t) {
          return castOp(DataType::BFloat16, cumsum(castOp(DataType::Float, t[0]), dim));
        },
        DataType::BFloat16);
    std::vector<double> values = std::get<Tensor>(b.cases.back().inputs[0]).toVector();
    for (size_t k = 0; k < values.size(); k++) {
      values[k] = std::ldexp(values[k], static_cast<int>(k * 7919 % 31) - 15);
    }
    b.cases.back().inputs[0] = Tensor::of(values, shape, DataType::BFloat16);
    bytes.push_back(std::ssize(values) * 2);
  }
  const WithOutputs all = runKeeping(b.cases, bytes);
  for (size_t i = 0; i < kLines.size(); i++) {
    const Lines& l = kLines[i];
    EXPECT_TRUE(all.verdicts[i].right()) << all.verdicts[i].describe();
    const std::vector<double> in = std::get<Tensor>(b.cases[i].inputs[0]).toVector();
    const int64_t inner = l.product(l.dim + 1, l.shape.size());
    const std::vector<float> sums =
        summedInSegments<float>(in, l.product(0, l.dim), l.shape[l.dim], inner, lanesOf(all.verdicts[i].plan.program));
    const std::vector<double> expected =
        Tensor::of(std::vector<double>(sums.begin(), sums.end()), l.shape, DataType::BFloat16).toVector();
    Tensor got = Tensor::empty(l.shape, DataType::BFloat16);
    std::memcpy(got.data(), all.outputs[i].data(), all.outputs[i].size());
    EXPECT_EQ(got.toVector(), expected) << i;
    double exact = 0;
    double size = 0;
    for (int64_t j = 0; j < std::ssize(in); j++) {
      const int64_t at = j / (inner * l.shape[l.dim]) * inner * l.shape[l.dim] + j % l.shape[l.dim] * inner +
                         j / l.shape[l.dim] % inner;  // line by line
      exact = in[at] + (j % l.shape[l.dim] == 0 ? 0 : exact);
      size = std::fabs(in[at]) + (j % l.shape[l.dim] == 0 ? 0 : size);
      ASSERT_LE(std::fabs(sums[at] - exact), 17.001 * 0x1p-24 * size) << i << ", " << at;
    }
  }
}

// Of equal elements the first remains, and NaN too: +0 and -0 differ in their bits.
TEST(ScheduledScan, ExtremesHaveTheBitsOfALoop) {
  constexpr int64_t kCount = 700;
  ScheduledBatch b;
  std::vector<double> values;
  for (int64_t k = 0; k < 2 * kCount; k++) {
    values.push_back(k == kCount + 600 ? NAN : k % 3 == 0 ? -0.0 : k % 3 == 1 ? 0.0 : k < 300 ? -0.0 : 0.0);
  }
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    b.add({{2, kCount}}, [op](const Tensors& t) { return scan(t[0], 1, op); });
    b.cases.back().inputs[0] = Tensor::of(values, {2, kCount}, DataType::Float);
  }
  const WithOutputs all = runKeeping(b.cases, {8 * kCount, 8 * kCount});
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(all.verdicts[i].result.faultCount, 0) << all.verdicts[i].describe();
    std::vector<float> got(2 * kCount);
    std::memcpy(got.data(), all.outputs[i].data(), all.outputs[i].size());
    for (int64_t line = 0; line < 2; line++) {
      auto best = static_cast<float>(values[line * kCount]);
      for (int64_t j = 0; j < kCount; j++) {
        const auto x = static_cast<float>(values[line * kCount + j]);
        best = std::isnan(best) || std::isnan(x) ? NAN : (i == 0 ? best >= x : best <= x) ? best : x;
        const float y = got[line * kCount + j];
        ASSERT_TRUE(std::isnan(best) ? std::isnan(y) : std::bit_cast<uint32_t>(y) == std::bit_cast<uint32_t>(best))
            << i << ", " << line << ", " << j;
      }
    }
  }
}

TEST(ScheduledScan, TouchesFewSectorsWithoutConflicts) {
  ScheduledBatch b;
  for (const DataType type : {DataType::Float, DataType::BFloat16}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{16, 512}, {4, 4096}, {2, 8192}, {2, 16384}}) {
      b.add(
          {shape, {shape[1]}}, [=](const Tensors& t) { return maybeCastOp(type, mul(cumsum(exp(t[0]), 1), t[1])); },
          type);
    }
  }
  const std::vector<ScheduledVerdict> verdicts =
      runScheduled(b.cases, DeviceInfo::hopper(), [](std::span<const Launch> launches) {
        std::vector<Launch> counted(launches.begin(), launches.end());
        for (Launch& l : counted) {
          l.countSectors = true;
        }
        return run(counted);
      });
  for (const ScheduledVerdict& v : verdicts) {
    EXPECT_TRUE(v.right()) << v.describe();
    EXPECT_EQ(v.result.sharedConflicts, 0) << v.describe();
    for (const TensorTraffic& t : v.result.tensors) {
      EXPECT_EQ(t.sectors, t.idealSectors) << v.describe();
      EXPECT_EQ(t.requests * 512, t.readBytes + t.writtenBytes) << "an access is not 16 bytes wide\n" << v.describe();
    }
  }
}

// Ops before and after scans of random programs: casts, scales, exp, masks, broadcasts, and values that are used again.
TEST(ScheduledScan, RandomNeighbors) {
  ScheduledBatch b;
  for (uint64_t seed = 0; seed < (kSanitized ? 20 : 60); seed++) {
    fuzz::Random random(seed);
    const std::vector<int64_t> extents = {2, 3, 5, 8, 16, 17, 33, 64, 100, 257, 1025};
    std::vector<int64_t> shape(random.between(1, 3));
    const int64_t dim = random.below(std::ssize(shape));
    for (int64_t& e : shape) {
      e = random.of(std::vector<int64_t>(extents.begin(), extents.begin() + (shape.size() < 3 ? 9 : 6)));
    }
    shape[dim] = random.of(extents);
    const DataType type = random.of<DataType>({DataType::Float, DataType::BFloat16, DataType::Half, DataType::Int32});
    const auto build = [&](const Tensors& t) {
      const auto wide = [&](TensorView* v) { return isHalfPrecision(v->dtype()) ? castOp(DataType::Float, v) : v; };
      const auto changed = [&](TensorView* v) {
        switch (random.below(5)) {
          case 0:
            return mul(wide(v), 2);
          case 1:
            return add(wide(v), wide(t[1]));
          case 2:
            return where(gt(wide(t[0]), 0), wide(v), 1);
          case 3:
            return isIntegral(v->dtype()) ? neg(v) : maybeCastOp(DataType::BFloat16, wide(v));
          default:
            return v;
        }
      };
      TensorView* x = changed(changed(t[0]));
      const bool isMax = random.chance(25);
      TensorView* z = isMax ? scan(wide(x), dim, ReduceOp::Max) : scan(wide(x), dim, ReduceOp::Sum);
      z = changed(changed(z));
      z = mul(wide(z), wide(t[1]));
      return random.chance(50) ? add(z, wide(x)) : z;
    };
    b.add({shape, {shape.back()}}, build, type);
  }
  for (const ScheduledVerdict& v : runScheduled(b.cases)) {
    EXPECT_TRUE(v.right()) << v.describe();
    EXPECT_EQ(v.plan.kind, "scan");
  }
}

TEST(ScheduledScan, SpillsNoRegisters) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  NvrtcCompiler compiler;
  const ScheduledBatch batch = scanFusions();
  const auto nothing = [](std::span<const Launch> launches) { return std::vector<Result>(launches.size()); };
  for (const ScheduledVerdict& v : runScheduled(batch.cases, DeviceInfo::hopper(), nothing)) {
    EXPECT_EQ(v.plan.kind, "scan");
    for (const char* arch : kArchitectures) {
      const Cubin cubin = compiler.compileCubin(v.source.text, arch);
      EXPECT_EQ(frameBytes(cubin.bytes), 0) << arch << "\n" << v.source.text;
      EXPECT_EQ(cubin.log, "");
    }
  }
}

// In a kernel of one tile and in one of several: each barrier missing, a barrier that some threads skip, a line or a warp of shared memory too
// far, a shuffle over another distance, lanes and warps that add too little or too much, and a total that is lost.
TEST(ScheduledScan, PlantedFaultsAreNoticed) {
  const std::vector<std::vector<int64_t>> shapes = {{5, 1100}, {2, 9000}};
  const ScheduledBatch::Build build = [](const Tensors& t) { return mul(cumsum(t[0], 1), 2.0); };
  ScheduledBatch whole;
  for (const std::vector<int64_t>& shape : shapes) {
    whole.add({shape}, build);
  }
  const auto nothing = [](std::span<const Launch> launches) { return std::vector<Result>(launches.size()); };
  struct Planted {
    std::string name;
    std::string text;
    bool isRace = false;
  };
  std::vector<Planted> planted;
  ScheduledBatch broken;
  const std::vector<ScheduledVerdict> right = runScheduled(whole.cases, DeviceInfo::hopper(), nothing);
  for (size_t i = 0; i < shapes.size(); i++) {
    const std::string& text = right[i].source.text;
    const size_t kernel = text.find("//@ kernel");
    const auto plant = [&](const std::string& name, size_t at, size_t length, const std::string& by, bool isRace) {
      ASSERT_NE(at, std::string::npos) << name << text.substr(kernel);
      planted.push_back({name, std::string(text).replace(at, length, by), isRace});
      broken.add({shapes[i]}, build);
    };
    const auto replace = [&](const std::string& from, const std::string& by) {
      plant(from, text.find(from, kernel), from.size(), by, false);
    };
    int64_t barriers = 0;
    for (size_t at = text.find("barrier(", kernel); at != std::string::npos; at = text.find("barrier(", at + 1)) {
      plant("a missing barrier", at, text.find(';', at) + 1 - at, "", true);
      barriers++;
    }
    EXPECT_EQ(barriers, 3) << text.substr(kernel);
    const size_t barrier = text.find("barrier(", kernel);
    plant("a divergent barrier", barrier, 0, "if (threadIndex() < 32) ", false);
    replace("sharedStore<double>(kTotals0 + ", "sharedStore<double>(kTotals0 + 65536 + ");
    const std::string read = "sharedLoad<double>(kTotals0 + ";
    plant("a read of another warp", text.rfind(read), read.size(), read + "8 + ", false);
    replace(", distance, ", ", 1, ");
    replace(" >= distance", " > distance");
    replace("if (w < k_w)", "if (w <= k_w)");
    replace("if (k_l > 0)", "if (k_l > 1)");
    replace("if (k_l == 31", "if (k_l == 30");
    replace("(float)(before", "(float)(1.0 + before");
  }
  const std::vector<ScheduledVerdict> verdicts =
      runScheduled(broken.cases, DeviceInfo::hopper(), [&](std::span<const Launch> launches) {
        std::vector<Launch> all(launches.begin(), launches.end());
        for (size_t i = 0; i < all.size(); i++) {
          all[i].kernel.source.text = planted[i].text;
        }
        return run(all);
      });
  for (size_t i = 0; i < verdicts.size(); i++) {
    EXPECT_FALSE(verdicts[i].right()) << planted[i].name << "\n" << planted[i].text;
    if (planted[i].isRace) {
      ASSERT_FALSE(verdicts[i].result.faults.empty()) << planted[i].name << "\n" << planted[i].text;
      EXPECT_NE(verdicts[i].result.faults[0].find("shared "), std::string::npos) << verdicts[i].result.faults[0];
    }
  }
}

}  // namespace
}  // namespace meshfuse::simt
