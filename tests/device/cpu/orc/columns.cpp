#include "device/cpu/orc/columns.h"

namespace meshfuse {

using tile::Builder;
using tile::Level;
using tile::Memory;
using tile::ValueId;

tile::Program elementwise(const std::string& name, const std::vector<DataType>& inputs, DataType output,
                          const std::function<ValueId(Builder&, const std::vector<ValueId>&)>& make) {
  Builder b(name, tile::Target::Cpu);
  IntExpr n = b.size("N", {.lower = 1});
  std::vector<int64_t> tensors;
  for (size_t i = 0; i < inputs.size(); i++) {
    tensors.push_back(b.tensor({"X" + std::to_string(i), inputs[i], Memory::Input, {n}, {1}, 64}));
  }
  int64_t y = b.tensor({"Y", output, Memory::Output, {n}, {1}, 64});
  int64_t s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    std::vector<ValueId> values;
    for (int64_t t : tensors) {
      values.push_back(b.load(t, {{b.coord(s, 0)}}, s));
    }
    b.store(y, {{b.coord(s, 0)}}, make(b, values));
    return std::vector<ValueId>{};
  });
  return b.take();
}

void run(const CpuKernel& kernel, std::vector<Column>& columns, Column& output) {
  std::vector<uint64_t> slots;
  for (Column& c : columns) {
    slots.push_back(reinterpret_cast<uint64_t>(c.data()));
  }
  slots.push_back(reinterpret_cast<uint64_t>(output.data()));
  slots.push_back(output.size());
  kernel.run(slots.data(), 0, 1, nullptr);
}

}  // namespace meshfuse
