#include "exec/shared_machine.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

namespace {

class Writer {
 public:
  void transfer(const void* data, size_t bytes) { text_.append(static_cast<const char*>(data), bytes); }
  template <class List>
  void transferSize(const List& list) {
    const size_t size = list.size();
    transfer(&size, sizeof size);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  void transfer(void* data, size_t bytes) {
    deviceCheck(bytes <= text_.size(),
                "[calibrate] the description of rank 0 ends early; start the same build on all ranks");
    std::memcpy(data, text_.data(), bytes);
    text_.remove_prefix(bytes);
  }
  template <class List>
  void transferSize(List& list) {
    size_t size = 0;
    transfer(&size, sizeof size);
    list.resize(size);
  }

 private:
  std::string_view text_;
};

// One order of all fields, for both directions.
template <class Direction, class Number>
requires(std::is_arithmetic_v<Number> || std::is_enum_v<Number>) void transfer(Direction& to, Number& number) {
  to.transfer(&number, sizeof number);
}

template <class Direction>
void transfer(Direction& to, std::string& text) {
  to.transferSize(text);
  to.transfer(text.data(), text.size());
}

template <class Direction>
void transfer(Direction& to, TimeTable& table) {
  to.transferSize(table.points);
  for (auto& [size, seconds] : table.points) {
    transfer(to, size);
    transfer(to, seconds);
  }
}

template <class Direction>
void transfer(Direction& to, LinkSpeed& link) {
  transfer(to, link.bandwidth);
  transfer(to, link.latency);
  to.transferSize(link.collectives);
  for (CollectiveSpeed& c : link.collectives) {
    transfer(to, c.kind);
    transfer(to, c.ranks);
    transfer(to, c.times);
  }
}

template <class Direction>
void transfer(Direction& to, DeviceSpeed& device) {
  for (double* number : {&device.flops, &device.flops16, &device.bandwidth, &device.launch}) {
    transfer(to, *number);
  }
  to.transferSize(device.products);
  for (ProductSpeed& p : device.products) {
    transfer(to, p.form.op);
    transfer(to, p.form.type);
    transfer(to, p.form.contracted);
    transfer(to, p.times);
  }
  for (TimeTable* table : {&device.functions, &device.points, &device.memory}) {
    transfer(to, *table);
  }
}

template <class Direction>
void transfer(Direction& to, DistributedConfig& machines) {
  transfer(to, machines.machines);
  transfer(to, machines.devicesPerMachine);
  transfer(to, machines.within);
  transfer(to, machines.between);
  transfer(to, machines.memoryPerDevice);
  transfer(to, machines.device);
}

}  // namespace

double leastShare(std::span<const MemoryOfRank> ranks) {
  double least = std::numeric_limits<double>::infinity();
  for (const MemoryOfRank& rank : ranks) {
    const auto sharing = std::ranges::count(ranks, rank.place, &MemoryOfRank::place);
    least = std::min(least, static_cast<double>(rank.bytes) / static_cast<double>(sharing));
  }
  return least;
}

DistributedConfig ofFirstRank(Communicator& comm, const DistributedConfig& own) {
  DistributedConfig machines = own;
  Writer writer;
  if (comm.rank() == 0) {
    transfer(writer, machines);
  }
  const std::vector<std::string> texts = comm.exchange(writer.text());
  Reader reader(texts[0]);
  transfer(reader, machines);
  return machines;
}

}  // namespace meshfuse
