#include "fuzz/planted.h"
#include "device/forwarding_device.h"
#include "device/open.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "exec/compile.h"
#include "host/executor.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse::fuzz {

namespace {

using tile::Value;
using tile::ValueKind;
using KernelChange = std::function<bool(tile::Program&)>;

// A change of every value that it fits.
KernelChange inValues(const std::function<bool(tile::Program&, Value&)>& change) {
  return [change](tile::Program& p) {
    bool any = false;
    for (Value& v : p.values) {
      any = change(p, v) || any;
    }
    return any;
  };
}

KernelChange replacingOp(PointOp from, PointOp to) {
  return inValues([=](tile::Program&, Value& v) {
    bool fits = v.kind == ValueKind::Point && v.op == from;
    v.op = fits ? to : v.op;
    return fits;
  });
}

KernelChange swappingOperands(PointOp op, size_t a, size_t b) {
  return inValues([=](tile::Program&, Value& v) {
    if (v.kind != ValueKind::Point || v.op != op || v.operands[a] == v.operands[b]) {
      return false;
    }
    std::swap(v.operands[a], v.operands[b]);
    return true;
  });
}

double inBFloat16(double value) {
  uint16_t bits = 0;
  storeElement(&bits, DataType::BFloat16, value);
  return loadElement(&bits, DataType::BFloat16);
}

std::vector<PlantedBug> kernelBugs() {
  return {
      {"a difference with its operands exchanged", swappingOperands(PointOp::Sub, 0, 1)},
      {"a quotient with its operands exchanged", swappingOperands(PointOp::Div, 0, 1)},
      {"a choice with its sides exchanged", swappingOperands(PointOp::Where, 1, 2)},
      {"a comparison the wrong way", replacingOp(PointOp::Gt, PointOp::Lt)},
      {"rounding towards zero instead of down", replacingOp(PointOp::Floor, PointOp::Trunc)},
      {"a remainder with the dividend's sign", replacingOp(PointOp::Remainder, PointOp::Fmod)},
      {"a sum over lanes as a maximum", inValues([](tile::Program&, Value& v) {
         bool fits = v.kind == ValueKind::Reduce && v.combiner == ReduceOp::Sum;
         v.combiner = fits ? ReduceOp::Max : v.combiner;
         return fits;
       })},
      {"a maximum that starts at zero", inValues([](tile::Program&, Value& v) {
         bool fits = v.kind == ValueKind::Const && isFloatingPoint(v.dtype) &&
                     v.constant == -std::numeric_limits<double>::infinity();
         v.constant = fits ? 0 : v.constant;
         return fits;
       })},
      {"a window one element short", inValues([](tile::Program&, Value& v) {
         bool fits = v.kind == ValueKind::Load && v.fill != tile::kNone && !v.where.empty();
         if (fits) {
           v.where.back().rhs = v.where.back().rhs - 1;
         }
         return fits;
       })},
      {"a square read transposed", inValues([](tile::Program& p, Value& v) {
         if (v.kind != ValueKind::Load || v.index.size() < 2 || !v.where.empty()) {
           return false;
         }
         const tile::TensorParam& t = p.tensors[v.param];
         size_t n = v.index.size();
         if (!(t.extents[n - 1] == t.extents[n - 2]) || v.index[n - 1].expr == v.index[n - 2].expr) {
           return false;
         }
         std::swap(v.index[n - 1], v.index[n - 2]);
         return true;
       })},
      {"a cast to 16 bits and back left out", inValues([](tile::Program& p, Value& v) {
         if (v.kind != ValueKind::Cast || v.dtype != DataType::Float) {
           return false;
         }
         const Value& inner = p.values[v.operands[0]];
         if (inner.kind != ValueKind::Cast || !isHalfPrecision(inner.dtype)) {
           return false;
         }
         v.operands[0] = inner.operands[0];
         return true;
       })},
      {"constants of 16 bits where they have 32", inValues([](tile::Program&, Value& v) {
         if (v.kind != ValueKind::Const || v.dtype != DataType::Float || std::isinf(v.constant)) {
           return false;
         }
         double rounded = inBFloat16(v.constant);
         bool changed = rounded != v.constant;
         v.constant = rounded;
         return changed;
       })},
      {"the wrong word of a random number", inValues([](tile::Program&, Value& v) {
         bool fits = v.kind == ValueKind::Random;
         v.param = fits ? (v.param + 1) % 4 : v.param;
         return fits;
       })},
      {"the last element of an axis left out",
       [](tile::Program& p) {
         for (tile::Space& s : p.spaces) {
           for (tile::Axis& a : s.axes) {
             if (a.bound.isConst() && a.bound.constValue() > 1) {
               a.bound = a.bound - 1;
               return true;
             }
           }
         }
         return false;
       }},
  };
}

std::vector<PlantedBug> stepBugs() {
  auto inCollectives = [](const std::function<bool(CommCall&)>& change) {
    return [change](HostProgram& p, ProgramSizes&) {
      bool any = false;
      for (Step& s : p.steps) {
        any = (s.kind == HostStepKind::Communicate && change(s.comm)) || any;
      }
      return any;
    };
  };
  return {
      {"a communication left out",
       {},
       [](HostProgram& p, ProgramSizes& sizes) {
         auto at = std::find_if(p.steps.begin(), p.steps.end(),
                                [](const Step& s) { return s.kind == HostStepKind::Communicate; });
         bool found = at != p.steps.end();
         if (found) {
           sizes.steps.erase(sizes.steps.begin() + (at - p.steps.begin()));
           p.steps.erase(at);
         }
         return found;
       }},
      {"a sum over ranks as a maximum", {}, inCollectives([](CommCall& c) {
         bool fits = reduces(c.kind) && c.reduce == ReduceOp::Sum;
         c.reduce = fits ? ReduceOp::Max : c.reduce;
         return fits;
       })},
      {"the blocks of an all-gather in reverse", {}, inCollectives([](CommCall& c) {
         bool fits = c.kind == Collective::AllGather && c.counts.empty();
         if (fits) {
           std::reverse(c.team.ranks.begin(), c.team.ranks.end());
         }
         return fits;
       })},
      {"every rank at coordinate 0",
       {},
       [](HostProgram&, ProgramSizes& sizes) {
         bool any = false;
         for (StepSizes& s : sizes.steps) {
           for (IntExpr& e : s.launch) {
             e = 0;
             any = true;
           }
         }
         return any;
       }},
      {"two tensors in one place",
       {},
       [](HostProgram& p, ProgramSizes& sizes) {
         const auto inArena = [&](int t) { return p.tensors[t].place == Place::Arena; };
         for (const Step& s : p.steps) {
           for (int a : s.reads) {
             for (int b : s.reads) {
               const TensorSizes& x = sizes.tensors[a];
               TensorSizes& y = sizes.tensors[b];
               if (inArena(a) && inArena(b) && x.offset != y.offset && y.bytes <= x.bytes) {
                 y.offset = x.offset;
                 return true;
               }
             }
           }
         }
         return false;
       }},
  };
}

// Raised where there is nothing to change: no code need be generated then.
struct NotApplicable : std::exception {};

std::vector<tile::Program> changedBy(const KernelChange& change, std::span<const tile::Program> programs) {
  std::vector<tile::Program> changed;
  bool any = false;
  for (const tile::Program& p : programs) {
    tile::Program copy = p;
    bool applied = change(copy) && tile::verify(copy).empty();
    any = any || applied;
    changed.push_back(applied ? std::move(copy) : p);
  }
  if (!any) {
    throw NotApplicable();
  }
  return changed;
}

// The outputs of one rank; nothing where there was nothing to change.
std::optional<std::vector<Tensor>> runChanged(const Fusion& fusion, const std::vector<Argument>& inputs,
                                              Communicator& comm, const PlantedBug& bug,
                                              std::shared_ptr<const Fusion>& planned) {
  std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
  if (bug.kernel) {
    device = std::make_shared<ChangingDevice>(
        std::move(device), [&](std::span<const tile::Program> programs) { return changedBy(bug.kernel, programs); });
  }
  CompiledProgram compiled;
  try {
    compiled = compile(fusion, inputs, Agreement(comm).call(), device);
  } catch (const Error&) {
    throw NotApplicable();  // the compiler saw it: not what is tried here
  }
  planned = compiled.program.planned.fusion();
  auto program = std::make_shared<HostProgram>(*compiled.host);
  auto sizes = std::make_shared<ProgramSizes>(program->sizes());
  if (bug.steps && !bug.steps(*program, *sizes)) {
    return std::nullopt;
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < program->outputs.size(); i++) {
    const TensorSizes& plan = sizes->tensors[program->outputs[i]];
    const DataType dtype = program->tensors[program->outputs[i]].dtype;
    if (program->aliasOf[i]) {
      outputs.push_back(std::get<Tensor>(inputs[*program->aliasOf[i]]));
      continue;
    }
    outputs.push_back(
        Tensor::full(plan.sizes, dtype, isFloatingPoint(dtype) ? std::nan("") : 1).asStrided(plan.sizes, plan.strides));
  }
  program->constant = std::move(sizes);
  Binding binding(program, comm);
  binding.run(comm, inputs, outputs);
  return outputs;
}

}  // namespace

std::vector<PlantedBug> plantedBugs() {
  std::vector<PlantedBug> bugs = kernelBugs();
  std::vector<PlantedBug> more = stepBugs();
  bugs.insert(bugs.end(), more.begin(), more.end());
  return bugs;
}

PlantedRun runPlanted(const fuzz::Program& program, const Reference& reference, const PlantedBug& bug) {
  bool sharded = bug.steps != nullptr;
  PlantedRun run;
  if (sharded && program.ranks == 1) {
    return run;
  }
  std::unique_ptr<Fusion> single = sharded ? nullptr : withoutShardings(*program.fusion);
  std::mutex mutex;
  try {
    runLoopback(sharded ? program.ranks : 1, [&](Communicator& comm) {
      std::vector<Argument> local = program.inputs;
      for (size_t i = 0; i < local.size(); i++) {
        const Val* in = program.fusion->inputs()[i];
        if (in->isTensor() && sharded) {
          local[i] = shardTensor(std::get<Tensor>(local[i]), in->asTensor(), comm.rank()).clone();
        } else if (in->isTensor() && std::get<Tensor>(local[i]).isContiguous()) {
          local[i] = std::get<Tensor>(local[i]).clone();  // the program may write to it
        }
      }
      std::shared_ptr<const Fusion> planned;
      std::optional<std::vector<Tensor>> got =
          runChanged(sharded ? *program.fusion : *single, local, comm, bug, planned);
      std::lock_guard lock(mutex);
      run.applied = run.applied || got.has_value();
      for (size_t i = 0; got && i < got->size() && !run.difference; i++) {
        const BoundedTensor& whole = reference.of(sharded)[i];
        const TensorView* tv = planned->outputs()[i]->asTensor();
        BoundedTensor part = whole;
        if (sharded) {
          part = {shardTensor(whole.value, tv, comm.rank()).contiguous(),
                  shardTensor(whole.error, tv, comm.rank()).contiguous(), 0};
        }
        run.difference = difference((*got)[i], part);
      }
    });
  } catch (const NotApplicable&) {
    return {};
  } catch (const std::exception& e) {
    run.applied = true;
    run.difference = e.what();
  }
  return run;
}

}  // namespace meshfuse::fuzz
