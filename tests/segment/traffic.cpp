#include "segment/traffic.h"
#include "device/forwarding_device.h"
#include "device/open.h"

#include <algorithm>

#include "exec/compile.h"
#include "host/program.h"
#include "multidevice/transport/communicator.h"
#include "tile/interpreter.h"

namespace meshfuse {

namespace {

// Memory for every tensor of a host program.
struct Memory {
  std::vector<Tensor> tensors;
  std::vector<Tensor> workspaces;

  explicit Memory(const HostProgram& host) {
    for (size_t k = 0; k < host.tensors.size(); k++) {
      const TensorSizes& t = host.sizes().tensors[k];
      int64_t span = 1;
      for (size_t d = 0; d < t.sizes.size(); d++) {
        span += (t.sizes[d] - 1) * t.strides[d];
      }
      tensors.push_back(Tensor::zeros({std::max<int64_t>(span, 1)}, host.tensors[k].dtype));
    }
  }
};

void count(const HostProgram& host, const Step& step, const tile::Program& program, Memory& memory,
           ProgramTraffic& result) {
  std::vector<void*> pointers;
  for (int t : step.launch.tensors) {
    if (t < 0) {
      memory.workspaces.push_back(Tensor::zeros({host.sizes().arenaBytes}, DataType::Bool));
    }
    pointers.push_back(t >= 0 ? memory.tensors[t].data() : memory.workspaces.back().data());
  }
  std::vector<int64_t> sizes;
  for (const IntExpr& e : step.launch.sizes) {
    sizes.push_back(e.constValue());
  }
  std::vector<double> scalars(step.launch.scalars.size(), 1.0);
  tile::Interpretation run = tile::interpret(program, tile::packSlots(program, pointers, sizes, scalars));
  for (size_t k = 0; k < program.tensors.size(); k++) {
    tile::Memory kind = program.tensors[k].memory;
    if (kind == tile::Memory::Input || kind == tile::Memory::Output || kind == tile::Memory::InOut) {
      result.readBytes += run.tensors[k].distinctReadBytes;
      result.writtenBytes += run.tensors[k].distinctWrittenBytes;
    }
  }
}

}  // namespace

ProgramTraffic measure(const std::function<void(Fusion&)>& build, const std::vector<Argument>& inputs) {
  Fusion fusion;
  {
    FusionGuard guard(&fusion);
    build(fusion);
  }
  std::vector<tile::Program> programs;
  const auto keep = [&](std::span<const tile::Program> all) {
    programs.assign(all.begin(), all.end());
    return programs;
  };
  // the programs run in the tile interpreter only
  const auto device =
      std::make_shared<ChangingDevice>(openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false}), keep);
  std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  CompiledProgram compiled = compile(fusion, inputs, Agreement(*alone).call(), device);
  const HostProgram& host = *compiled.host;
  Memory memory(host);
  ProgramTraffic result;
  result.arenaBytes = host.sizes().arenaBytes;
  for (const Step& step : host.steps) {
    result.steps.push_back(step.name.substr(0, step.name.find(' ')));
    if (step.kind == HostStepKind::Launch) {
      // steps with equal programs share a kernel
      const auto program =
          std::ranges::find_if(programs, [&](const auto& p) { return tile::toString(p) == step.launch.program; });
      count(host, step, programs.at(program - programs.begin()), memory, result);
    }
  }
  for (const Segment& s : compiled.program.segments) {
    if (!s.boundary.empty()) {
      result.boundaries.push_back(s.boundary);
    }
    result.joins.insert(result.joins.end(), s.joins.begin(), s.joins.end());
  }
  return result;
}

}  // namespace meshfuse
