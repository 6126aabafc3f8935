#include "autoplan/machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostDevices = int64_t{1} << 20;
constexpr int64_t kListedDevices = 256;

// The times of a plan stay finite: the search takes infinite ones for choices that are not possible.
constexpr double kMostSeconds = 1e6;

void checkAmount(double value, const std::string& field) {
  check(std::isfinite(value) && value >= 1, "[autoplan] {} is {}, expected a number, at least 1", field, value);
}

void checkLatency(double value, const std::string& field) {
  check(value >= 0 && value <= kMostSeconds, "[autoplan] {} is {}, expected a number of seconds, 0 to {}", field, value,
        kMostSeconds);
}

void checkTable(const TimeTable& table, const std::string& field) {
  double last = 0;
  for (const auto& [size, seconds] : table.points) {
    check(std::isfinite(size) && size >= 1 && size > last && seconds > 0 && seconds <= kMostSeconds,
          "[autoplan] {} has the point [{}, {}], expected ascending sizes, at least 1, and positive seconds, at most "
          "{}",
          field, size, seconds, kMostSeconds);
    last = size;
  }
}

void checkLink(const LinkSpeed& link, const std::string& field) {
  checkAmount(link.bandwidth, field + ".bandwidth");
  checkLatency(link.latency, field + ".latency");
  std::set<std::string> names;
  for (const CollectiveSpeed& c : link.collectives) {
    const std::string name = fmt::format("{}.collectives, {} of {} ranks,", field, identifier(c.kind), c.ranks);
    check(c.ranks >= 2 && !c.times.empty(), "[autoplan] {} got {} points, expected at least 2 ranks and 1 point", name,
          c.times.points.size());
    check(names.insert(name).second, "[autoplan] {} has two tables; remove one", name);
    checkTable(c.times, name);
  }
}

}  // namespace

double TimeTable::seconds(double size) const {
  const auto above = std::ranges::upper_bound(points, size, {}, &std::pair<double, double>::first);
  if (above == points.begin()) {
    return above->second;
  }
  const auto [size0, seconds0] = *std::prev(above);
  if (above == points.end()) {
    return seconds0 * size / size0;
  }
  return seconds0 + (size - size0) / (above->first - size0) * (above->second - seconds0);
}

double LinkSpeed::seconds(Collective kind, int64_t ranks, double bytes) const {
  const CollectiveSpeed* best = nullptr;
  for (const CollectiveSpeed& c : collectives) {
    const bool isBetter =
        best == nullptr || (best->ranks < ranks ? c.ranks > best->ranks : c.ranks >= ranks && c.ranks < best->ranks);
    if (c.kind == kind && isBetter) {
      best = &c;
    }
  }
  return best != nullptr ? best->times.seconds(bytes) : latency + bytes / bandwidth;
}

Work& Work::operator+=(const Work& more) {
  product = more.flops > 0 ? more.product : product;
  flops += more.flops;
  functions += more.functions;
  points += more.points;
  bytes += more.bytes;
  return *this;
}

// Of the listed extents around the contracted one, on the line between their times by the logarithm of the extent.
double DeviceSpeed::secondsOfProduct(const ProductForm& form, double flops) const {
  const ProductSpeed* below = nullptr;
  const ProductSpeed* above = nullptr;
  for (const ProductSpeed& p : products) {
    if (p.form.op == form.op && p.form.type == form.type) {
      const int64_t extent = p.form.contracted;
      below = extent <= form.contracted && (below == nullptr || extent > below->form.contracted) ? &p : below;
      above = extent >= form.contracted && (above == nullptr || extent < above->form.contracted) ? &p : above;
    }
  }
  if (below == nullptr && above == nullptr) {
    const double scale = 4 / static_cast<double>(std::max<int64_t>(4, dataTypeSize(form.type)));
    return flops / (isHalfPrecision(form.type) ? flops16 : this->flops * scale);
  }
  below = below == nullptr ? above : below;
  above = above == nullptr ? below : above;
  const double low = below->times.seconds(flops);
  const double high = above->times.seconds(flops);
  if (below->form.contracted == above->form.contracted) {
    return std::max(0.0, low - launch);
  }
  const auto logOf = [](int64_t extent) { return std::log(static_cast<double>(extent)); };
  const double part = (logOf(form.contracted) - logOf(below->form.contracted)) /
                      (logOf(above->form.contracted) - logOf(below->form.contracted));
  return std::max(0.0, low + part * (high - low) - launch);
}

double DeviceSpeed::seconds(const Work& work) const {
  const auto of = [&](const TimeTable& table, double size, double perSecond) {
    return size <= 0 ? 0 : table.empty() ? size / perSecond : std::max(0.0, table.seconds(size) - launch);
  };
  const double elements = of(functions, work.functions, flops) + of(points, work.points, flops);
  return std::max(
      {work.flops > 0 ? secondsOfProduct(work.product, work.flops) : 0, elements, of(memory, work.bytes, bandwidth)});
}

void checkMachines(const DistributedConfig& m) {
  check(m.machines >= 1, "[autoplan] machines is {}, expected at least 1", m.machines);
  check(m.devicesPerMachine >= 1, "[autoplan] devicesPerMachine is {}, expected at least 1", m.devicesPerMachine);
  check(m.machines <= kMostDevices / m.devicesPerMachine,
        "[autoplan] {} machines of {} devices, expected at most {} devices; describe fewer", m.machines,
        m.devicesPerMachine, kMostDevices);
  checkLink(m.within, "within");
  checkLink(m.between, "between");
  const bool hasBothLinks = m.machines > 1 && m.devicesPerMachine > 1;
  check(!hasBothLinks || m.between.bandwidth <= m.within.bandwidth,
        "[autoplan] between.bandwidth is {}, more than within.bandwidth, {}: a link between machines is at most as "
        "fast as "
        "one inside a machine; exchange them, or describe all devices as one machine",
        m.between.bandwidth, m.within.bandwidth);
  check(!hasBothLinks || m.between.latency >= m.within.latency,
        "[autoplan] between.latency is {}, less than within.latency, {}; exchange them, or describe all devices as one "
        "machine",
        m.between.latency, m.within.latency);
  checkAmount(m.memoryPerDevice, "memoryPerDevice");
  checkAmount(m.device.flops, "device.flops");
  checkAmount(m.device.flops16, "device.flops16");
  checkAmount(m.device.bandwidth, "device.bandwidth");
  checkLatency(m.device.launch, "device.launch");
  std::set<std::string> forms;
  for (const ProductSpeed& p : m.device.products) {
    const std::string field =
        fmt::format("device.products, {} of {} with {} contracted,", p.form.op, name(p.form.type), p.form.contracted);
    check(p.form.contracted >= 1 && !p.times.empty(),
          "[autoplan] {} got {} points, expected a contracted extent of at least 1 and 1 point", field,
          p.times.points.size());
    check(forms.insert(field).second, "[autoplan] {} has two tables; remove one", field);
    checkTable(p.times, field);
  }
  checkTable(m.device.functions, "device.functions");
  checkTable(m.device.points, "device.points");
  checkTable(m.device.memory, "device.memory");
}

LinkSpeed linkOf(const DistributedConfig& machines, const DeviceMesh& mesh, int64_t axis) {
  int64_t stride = 1;  // between ranks that are neighbours along the axis
  for (int64_t k = axis + 1; k < mesh.numAxes(); k++) {
    stride *= mesh.axisSizes()[k];
  }
  const int64_t span = stride * mesh.axisSizes()[axis];
  const auto machineOf = [&](int64_t position) { return mesh.devices()[position] / machines.devicesPerMachine; };
  const bool isWithin = std::ranges::all_of(
      indices(mesh.devices()), [&](int64_t k) { return machineOf(k) == machineOf(k / span * span + k % stride); });
  return isWithin ? machines.within : machines.between;
}

std::vector<DeviceMesh> candidateMeshes(int64_t devices) {
  std::vector<DeviceMesh> meshes{DeviceMesh::createForShape({devices})};
  for (int64_t outer = 2; outer < devices; outer++) {
    if (devices % outer == 0) {
      meshes.push_back(DeviceMesh::createForShape({outer, devices / outer}));
    }
  }
  return meshes;
}

std::string meshText(const DeviceMesh& mesh) {
  const std::string text = mesh.toString();
  return mesh.numDevices() <= kListedDevices
             ? text
             : fmt::format("{} of {} devices", text.substr(0, text.find('[')), mesh.numDevices());
}

}  // namespace meshfuse
