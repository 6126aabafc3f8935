#include "fuzz/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "exec/compile.h"
#include "host/reference.h"
#include "host/scalars.h"
#include "interpret/interpret.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "preseg_passes/rank_simulator.h"
#include "simt/emulator.h"
#include "tile/interpreter.h"

namespace meshfuse::fuzz {

namespace {

using Values = std::map<int64_t, Tensor>;

DeviceMesh meshOf(const Fusion& fusion) {
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->hasDeviceMesh()) {
      return tv->getDeviceMesh();
    }
  }
  return {};
}

// Every tensor of the local program on one rank; `locals` are the programs of all.
Values valuesOf(const Fusion& local, const std::map<int64_t, SegmentedProgram>& locals, const Program& program,
                int64_t rank) {
  if (rank < 0) {
    return interpretAll(local, program.inputs);
  }
  std::unique_ptr<Fusion> all = local.clone();
  std::vector<int64_t> ids;
  while (!all->outputs().empty()) {
    all->removeOutput(all->outputs()[0]);
  }
  for (TensorView* tv : all->tensors(ExprSet::All)) {
    if (tv->definition() != nullptr && local.val(tv->id()) != nullptr) {
      all->addOutput(tv);
      ids.push_back(tv->id());
    }
  }
  const DeviceMesh mesh = meshOf(*program.fusion);
  std::vector<std::vector<Tensor>> parts(program.ranks);  // by place in the mesh
  for (size_t place = 0; place < parts.size(); place++) {
    for (size_t i = 0; i < program.inputs.size(); i++) {
      const TensorView* tv = program.fusion->inputs()[i]->asTensor();
      parts[place].push_back(shardTensor(std::get<Tensor>(program.inputs[i]), tv, mesh.devices()[place]));
    }
  }
  const auto mine = static_cast<size_t>(mesh.indexOf(rank));
  std::vector<const Fusion*> programs;
  for (int64_t device : mesh.devices()) {
    programs.push_back(device == rank ? all.get() : locals.at(static_cast<int64_t>(device)).local.get());
  }
  std::vector<Tensor> results = simulateRanks(programs, mesh, parts)[mine];
  Values values;
  for (size_t i = 0; i < ids.size(); i++) {
    values[ids[i]] = results[i];
  }
  for (size_t i = 0; i < program.inputs.size(); i++) {
    values[local.inputs()[i]->id()] = parts[mine][i];
  }
  return values;
}

std::vector<int64_t> sizesOf(const TensorView* tv) {
  std::vector<int64_t> sizes;
  for (const IntExpr& e : tv->shape()) {
    sizes.push_back(e.constValue());
  }
  return sizes;
}

// Memory of the layout that a kernel was made for, without values.
Tensor memoryOf(const TensorView* tv, const Group& group) {
  std::vector<int64_t> sizes = sizesOf(tv);
  if (!group.layouts.contains(tv->id())) {
    return Tensor::empty(sizes, tv->dtype());
  }
  const std::vector<int64_t> strides = constantStrides(tv, group.layouts);
  int64_t span = 1;
  for (size_t d = 0; d < sizes.size(); d++) {
    span += std::max<int64_t>(0, sizes[d] - 1) * strides[d];
  }
  return Tensor::empty({span}, tv->dtype()).asStrided(sizes, strides);
}

std::unique_ptr<KernelCase> caseOf(const Segment& segment, const DeviceInfo& device, const Values& values,
                                   std::span<const Argument> arguments,
                                   const std::map<std::string, int64_t, std::less<>>& coordinates) {
  Group group = segment.group;
  group.aliases.clear();  // results have memory of their own
  auto result = std::make_unique<KernelCase>();
  result->plan = std::get<KernelPlan>(judge(group, device, allTemplates()).judgement->write());
  result->faults = tile::verify(result->plan.program);
  auto bound = [&](const IntExpr& e) {
    return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      auto found = coordinates.find(symbol);
      return found == coordinates.end() ? std::nullopt : std::optional<IntExpr>(found->second);
    });
  };
  std::vector<Argument> inputs;
  for (const TensorView* in : group.inputs) {
    inputs.emplace_back(values.at(in->id()));
  }
  ScalarSteps scalars;
  for (size_t i = 0; i < arguments.size(); i++) {
    if (!group.fusion->inputs()[i]->isTensor()) {
      inputs.push_back(arguments[i]);
    }
  }
  const std::shared_ptr<const Fusion> ops = referenceOf(*group.fusion, group, bound);
  result->fusion = ops->toString();
  std::vector<BoundedTensor> expected = interpretWithBounds(*ops, inputs);

  std::vector<void*> pointers;
  for (const KernelPlan::Slot& slot : result->plan.slots) {
    if (slot.tensor == nullptr) {
      const KernelPlan::Workspace& w = result->plan.workspaces[slot.workspace];
      result->memory.push_back(Tensor::zeros({w.elements.constValue()}, w.dtype));
    } else {
      result->memory.push_back(memoryOf(slot.tensor, group));
      auto out = std::find(group.outputs.begin(), group.outputs.end(), slot.tensor);
      if (out != group.outputs.end()) {
        result->outputs.push_back({pointers.size(), expected[out - group.outputs.begin()]});
      } else {
        result->memory.back().copyFrom(values.at(slot.tensor->id()));
      }
    }
    pointers.push_back(result->memory.back().data());
  }
  std::vector<int64_t> sizes;
  for (const IntExpr& e : result->plan.sizes) {
    sizes.push_back(bound(e).constValue());
  }
  const std::vector<tile::ScalarParam>& params = result->plan.program.scalars;
  result->slots = tile::packSlots(result->plan.program, pointers, sizes, std::vector<double>(params.size(), 0));
  const auto sizeOf = [&](std::string_view name) -> std::optional<int64_t> {
    const auto at = std::ranges::find(result->plan.program.sizes, name, &tile::SizeParam::name);
    return at == result->plan.program.sizes.end() ? std::nullopt
                                                  : std::optional(sizes[at - result->plan.program.sizes.begin()]);
  };
  result->parts = 1;
  for (const tile::GridDim& g : result->plan.program.grid) {
    result->parts *= g.count.evaluate(sizeOf);
  }
  std::vector<int64_t> numbers;
  for (const Val* s : result->plan.scalars) {
    numbers.push_back(scalars.add(*group.fusion, s));
  }
  scalars.run(*group.fusion, arguments);
  for (size_t i = 0; i < params.size(); i++) {
    result->slots[result->slots.size() - params.size() + i] = scalars.bits(numbers[i], params[i].dtype);
  }
  return result;
}

// Outputs hold no value that could be right by accident.
void poison(const KernelCase& k) {
  for (const KernelCase::Output& o : k.outputs) {
    Tensor t = k.memory[o.slot];
    double value = isFloatingPoint(t.dtype()) ? std::numeric_limits<double>::quiet_NaN() : -77;
    t.copyFrom(Tensor::full({t.sizes().begin(), t.sizes().end()}, t.dtype(), t.dtype() == DataType::Bool ? 1 : value));
  }
}

// Outputs are poisoned, and workspaces are as a call finds them.
void prepare(const KernelCase& k) {
  poison(k);
  for (size_t i = 0; i < k.plan.slots.size(); i++) {
    if (k.plan.slots[i].tensor == nullptr) {
      Tensor workspace = k.memory[i];
      workspace.copyFrom(Tensor::zeros({workspace.numel()}, workspace.dtype()));
    }
  }
}

std::string verdict(const KernelCase& k) {
  for (size_t i = 0; i < k.outputs.size(); i++) {
    if (std::optional<std::string> d = difference(k.memory[k.outputs[i].slot], k.outputs[i].expected)) {
      return fmt::format("output {}: {}", i, *d);
    }
  }
  return {};
}

}  // namespace

KernelCases kernelsOf(const Program& program, const DeviceInfo& device, int64_t rank) {
  KernelCases cases;
  std::mutex mutex;
  std::unique_ptr<Fusion> single = rank < 0 ? withoutShardings(*program.fusion) : nullptr;
  std::map<int64_t, SegmentedProgram> made;
  runLoopback(rank < 0 ? 1 : program.ranks, [&](Communicator& comm) {
    std::vector<Argument> local = program.inputs;
    for (size_t i = 0; rank >= 0 && i < local.size(); i++) {  // no scalars there
      local[i] = shardTensor(std::get<Tensor>(local[i]), program.fusion->inputs()[i]->asTensor(), comm.rank()).clone();
    }
    SegmentedProgram segmented =
        compileToSegments(rank < 0 ? *single : *program.fusion, local, Agreement(comm).call(), device);
    std::lock_guard lock(mutex);
    made[comm.rank()] = std::move(segmented);
  });
  const SegmentedProgram& mine = made.at(std::max<int64_t>(0, rank));
  Values values = valuesOf(*mine.local, made, program, rank);
  for (const Segment& s : mine.segments) {
    if (s.kind == SegmentKind::Kernel) {
      cases.push_back(caseOf(s, device, values, program.inputs,
                             CoordinateSymbols(*mine.planned).valuesOn(std::max<int64_t>(0, rank))));
      cases.back()->seed = program.seed;
    }
  }
  return cases;
}

std::vector<std::string> interpretKernels(const KernelCases& kernels) {
  std::vector<std::string> verdicts;
  for (const auto& k : kernels) {
    if (!k->faults.empty()) {
      verdicts.push_back("the verifier objects: " + k->faults[0]);
      continue;
    }
    poison(*k);
    try {
      tile::interpret(k->plan.program, k->slots);
      verdicts.push_back(verdict(*k));
    } catch (const std::exception& e) {
      verdicts.emplace_back(e.what());
    }
  }
  return verdicts;
}

std::vector<std::string> runKernels(const KernelCases& kernels, CpuCompiler& compiler) {
  std::vector<std::string> verdicts;
  for (const auto& k : kernels) {
    prepare(*k);
    try {
      const std::shared_ptr<const CpuKernel> kernel = compiler.compile({&k->plan.program, 1})[0];
      std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratchBytes(k->slots.data())) + 64);
      void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
      kernel->run(k->slots.data(), 0, k->parts, aligned);
      verdicts.push_back(verdict(*k));
    } catch (const std::exception& e) {
      verdicts.emplace_back(e.what());
    }
  }
  return verdicts;
}

std::vector<std::string> emulateKernels(const KernelCases& kernels, const Compilation& compilation,
                                        const simt::Runner& runner) {
  std::vector<simt::Launch> launches;
  for (const auto& k : kernels) {
    prepare(*k);
    launches.push_back({simt::kernelOf(k->plan.program), k->slots, launches.size() + 1, false});
  }
  std::vector<simt::Result> results = runner ? runner(launches) : simt::run(launches);
  std::vector<std::string> verdicts;
  for (size_t i = 0; i < kernels.size(); i++) {
    verdicts.push_back(results[i].faults.empty() ? verdict(*kernels[i]) : results[i].faults[0]);
    if (compilation.compiler == nullptr || static_cast<int64_t>(i) % compilation.every != 0) {
      continue;
    }
    try {
      const Cubin cubin = compilation.compiler->compileCubin(launches[i].kernel.source.text, "sm_90a");
      verdicts.back() += cubin.text == results[i].text ? cubin.log : "another text was compiled than emulated";
    } catch (const std::exception& e) {
      verdicts.back() += e.what();
    }
  }
  return verdicts;
}

}  // namespace meshfuse::fuzz
