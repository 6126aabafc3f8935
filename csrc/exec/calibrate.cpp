#include "exec/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/device.h"
#include "device/open.h"
#include "exec/fusion_executor_cache.h"
#include "exec/local_device.h"
#include "exec/shared_machine.h"
#include "exec/timed_steps.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/communicator.h"
#include "multidevice/transport/host/bootstrap.h"
#include "ops/contraction.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

constexpr int64_t kPoints = 16;            // ops of the kernel that measures them
constexpr int64_t kContractedBefore = 16;  // of the products before kernels

// Without the digits after the third.
double rounded(double value) {
  if (value <= 0) {
    return 0;
  }
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

// The number of machines, of equally many consecutive ranks.
int64_t machinesOf(Communicator& comm) {
  const std::vector<std::string> hosts = comm.exchange(hostIdentity());
  const int64_t first = std::ranges::count(hosts, hosts[0]);
  for (const int64_t rank : indices(hosts)) {
    check(
        hosts[rank] == hosts[rank / first * first] && std::ranges::count(hosts, hosts[rank]) == first,
        "[calibrate] rank {} is on a host that does not have {} ranks with consecutive numbers, as the host of rank 0 "
        "has; start as many ranks on every host, host by host",
        rank, first);
  }
  return comm.size() / first;
}

// The memory of the rank that has least.
double memoryOf(Communicator& comm, DeviceId device) {
  const std::optional<int64_t> own = openDevice(device, {.threads = 1})->memoryBytes();
  deviceCheck(own.has_value(), "[calibrate] {} does not say how much memory it has", device.toString());
  const std::vector<std::string> places = comm.exchange(hostIdentity() + " " + device.toString());
  const std::vector<std::string> bytes = comm.exchange(std::to_string(*own));
  return rounded(leastShare(mapped(
      indices(places), [&](int64_t k) { return MemoryOfRank{.place = places[k], .bytes = std::stoll(bytes[k])}; })));
}

enum class Resharding : uint8_t { Gather, Scatter, Reduce, Exchange };

class Calibration {
 public:
  Calibration(Communicator& comm, const CalibrationOptions& options)
      : comm_(comm), device_(localDevice(options.device, comm)), seconds_(options.seconds / kMeasurements) {
    result_.machines = machinesOf(comm);
    result_.devicesPerMachine = comm.size() / result_.machines;
    result_.memoryPerDevice = memoryOf(comm, device_);
  }

  DistributedConfig run() {
    measureDevice();
    measureLinks();
    return ofFirstRank(comm_, result_);
  }

 private:
  static constexpr double kMeasurements = 200;  // about

  Profile timesOf(std::unique_ptr<Fusion> fusion) {
    std::vector<Argument> inputs;
    for (const Val* in : fusion->inputs()) {
      const TensorView* tv = in->asTensor();
      const auto seed = static_cast<uint64_t>(in->id() + 1);
      const Tensor whole = randomTensor(tv->constantShape(), tv->dtype(), seed);
      inputs.emplace_back(shardTensor(whole, tv, comm_.rank()).clone().to(device_));
    }
    cache_ = std::make_unique<FusionExecutorCache>(std::move(fusion), ExecutorOptions{.communicator = &comm_});
    return timeSteps(*cache_, inputs, comm_, seconds_);
  }

  static TensorView* input(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::Float) {
    TensorView* tv = makeContigConcreteTensor(f, shape, type);
    f.addInput(tv);
    return tv;
  }

  // -- compute ----------------------------------------------------------------------------------------------------------
  static TimeTable tableOf(const std::vector<int64_t>& sizes, const std::function<double(int64_t)>& work,
                           const std::function<double(int64_t)>& seconds) {
    return {mapped(sizes, [&](int64_t n) { return std::pair(work(n), rounded(seconds(n))); })};
  }

  // Seconds of a kernel on n elements that a product has made, as most kernels read such: the caches and threads of products are others.
  double secondsOfKernel(int64_t n, const std::function<TensorView*(TensorView*)>& body) {
    constexpr int64_t kColumns = 64;
    auto fusion = std::make_unique<Fusion>();
    TensorView* x = input(*fusion, {n / kColumns, kContractedBefore});
    fusion->addOutput(body(linear(x, input(*fusion, {kColumns, kContractedBefore}))));
    const Profile p = timesOf(std::move(fusion));
    if (p.steps.size() == 2) {
      return p.steps[1].seconds;
    }
    fusion = std::make_unique<Fusion>();  // the product is part of the kernel
    fusion->addOutput(body(input(*fusion, {n})));
    return timesOf(std::move(fusion)).steps[0].seconds;
  }

  double secondsOfProduct(std::unique_ptr<Fusion> fusion) {
    return sumOf(timesOf(std::move(fusion)).steps, &StepTime::seconds);
  }

  // Of Float and 16-bit types, with both ways in which the second operand lies in memory.
  std::vector<ProductSpeed> products() {
    std::vector<ProductSpeed> result;
    for (const DataType type : mapped(kDataTypes, &DataTypeInfo::type)) {
      if (!isFloatingPoint(type) || dataTypeSize(type) > dataTypeSize(DataType::Float)) {
        continue;
      }
      for (const bool isTransposed : {false, true}) {
        for (const int64_t contracted : {32, 128, 512, 2048}) {
          std::string op;
          const auto flops = [&](int64_t n) { return 2.0 * static_cast<double>(n * n * contracted); };
          TimeTable times = tableOf({8, 32, 64, 128, 256, 512}, flops, [&](int64_t n) {
            auto fusion = std::make_unique<Fusion>();
            TensorView* a = input(*fusion, {n, contracted}, type);
            TensorView* product = isTransposed ? linear(a, input(*fusion, {n, contracted}, type))
                                               : matmul(a, input(*fusion, {contracted, n}, type));
            op = product->definition()->opName();
            fusion->addOutput(product);
            return secondsOfProduct(std::move(fusion));
          });
          result.push_back({{op, type, contracted}, std::move(times)});
        }
      }
    }
    return result;
  }

  void measureDevice() {
    const auto times = [](double factor) { return [factor](int64_t n) { return factor * static_cast<double>(n); }; };
    DeviceSpeed& d = result_.device;
    d.memory = tableOf(movedElements(result_.memoryPerDevice), times(8),
                       [&](int64_t n) { return secondsOfKernel(n, [](TensorView* x) { return neg(x); }); });
    d.points = tableOf({1 << 8, 1 << 12, 1 << 15, 1 << 18}, times(kPoints), [&](int64_t n) {
      return secondsOfKernel(n, [](TensorView* x) {
        for (int64_t k = 0; k < kPoints; k++) {
          x = k % 2 == 0 ? mul(x, 1.25) : maximum(x, -0.5 / static_cast<double>(k));
        }
        return x;
      });
    });
    d.functions = tableOf({1 << 8, 1 << 12, 1 << 15, 1 << 18}, times(2), [&](int64_t n) {
      return secondsOfKernel(n, [](TensorView* x) { return add(tanh(x), exp(x)); });
    });
    d.products = products();
    d.launch = d.memory.points.front().second;
    const auto speedAtEnd = [](const TimeTable& t) { return rounded(t.points.back().first / t.points.back().second); };
    d.flops = d.flops16 = 0;
    for (const ProductSpeed& p : d.products) {
      double& fastest = isHalfPrecision(p.form.type) ? d.flops16 : d.flops;
      fastest = std::max(fastest, speedAtEnd(p.times));
    }
    d.bandwidth = speedAtEnd(d.memory);
  }

  // -- communication ----------------------------------------------------------------------------------------------------
  // A tensor of `bytes` bytes, moved along axis number `axis` of the mesh.
  std::unique_ptr<Fusion> reshardingOf(Resharding how, const DeviceMesh& mesh, int64_t axis, int64_t bytes) const {
    const int64_t ranks = mesh.axisSizes()[axis];
    const int64_t columns = std::max<int64_t>(1, bytes / 4 / (ranks * ranks)) * ranks;
    auto fusion = std::make_unique<Fusion>();
    TensorView* x = input(*fusion, {ranks, columns});
    TensorView* y = how == Resharding::Gather || how == Resharding::Exchange ? set(x) : sum(x, {0});
    fusion->addOutput(y);
    x->setDeviceMesh(mesh);
    y->setDeviceMesh(mesh);
    x->outer_split(0, ranks)->axis(0)->parallelize(mesh.typeOf(axis));
    if (how == Resharding::Exchange || how == Resharding::Scatter) {
      y->outer_split(1, ranks)->axis(1)->parallelize(mesh.typeOf(axis));
    }
    return fusion;
  }

  void measureLink(LinkSpeed& link, const DeviceMesh& mesh, int64_t axis) {
    std::map<Collective, TimeTable> tables;
    for (const Resharding how : {Resharding::Gather, Resharding::Scatter, Resharding::Reduce, Resharding::Exchange}) {
      for (const int64_t bytes : {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23}) {
        const Profile p = timesOf(reshardingOf(how, mesh, axis, bytes));
        const std::shared_ptr<const HostProgram> host = cache_->hostProgram();
        for (const int64_t k : indices(host->steps)) {
          if (host->steps[k].kind == HostStepKind::Communicate) {
            const auto received = static_cast<double>(host->sizes().steps[k].comm.bytesReceived);
            tables[host->steps[k].comm.kind].points.emplace_back(received, rounded(p.steps[k].seconds));
          }
        }
      }
    }
    for (auto& [kind, table] : tables) {
      std::ranges::sort(table.points);
      const auto rest = std::ranges::unique(table.points, {}, &std::pair<double, double>::first);
      table.points.erase(rest.begin(), rest.end());
      link.collectives.push_back({kind, mesh.axisSizes()[axis], table});
    }
    const TimeTable& gather = tables.at(Collective::AllGather);
    link.latency = gather.points.front().second;
    link.bandwidth = rounded(gather.points.back().first / gather.points.back().second);
  }

  // Teams of consecutive ranks within machines; between them teams of one rank of each machine, and all ranks.
  void measureLinks() {
    const int64_t machines = result_.machines;
    const int64_t devices = result_.devicesPerMachine;
    for (int64_t team = 2; team <= devices; team++) {
      if (devices % team == 0) {
        measureLink(result_.within, DeviceMesh::createForShape({comm_.size() / team, team}), 1);
      }
    }
    for (int64_t team = 2; team <= machines; team++) {
      if (machines % team == 0) {
        measureLink(result_.between, DeviceMesh::createForShape({machines / team, team, devices}), 1);
      }
    }
    if (machines > 1 && devices > 1) {
      measureLink(result_.between, DeviceMesh::createForShape({comm_.size()}), 0);
      // noise aside, no link between machines is faster
      result_.between.bandwidth = std::min(result_.between.bandwidth, result_.within.bandwidth);
      result_.between.latency = std::max(result_.between.latency, result_.within.latency);
    }
  }

  Communicator& comm_;
  const DeviceId device_;
  const double seconds_;  // of a program
  DistributedConfig result_;
  std::unique_ptr<FusionExecutorCache> cache_;  // of the last program
};

}  // namespace

std::vector<int64_t> movedElements(double memory) {
  constexpr double kBytes = 10;        // that an element takes: of the product, of the result and of the input
  constexpr int64_t kLeast = 1 << 16;  // elements that any rank has room for
  std::vector<int64_t> sizes{1 << 8, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
  std::erase_if(sizes, [&](int64_t n) { return n > kLeast && kBytes * static_cast<double>(n) > memory / 4; });
  return sizes;
}

DistributedConfig calibrate(Communicator& comm, const CalibrationOptions& options) {
  check(std::isfinite(options.seconds) && options.seconds > 0, "[calibrate] got {} seconds, expected a positive number",
        options.seconds);
  return Calibration(comm, options).run();
}

}  // namespace meshfuse
