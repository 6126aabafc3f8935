#include "exec/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>

#include "base/ranges.h"
#include "exec/compile.h"
#include "host/build.h"
#include "host/program.h"
#include "host/replay.h"
#include "ir/fusion.h"
#include "ir/plan_text.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/step_amounts.h"

namespace meshfuse {

namespace {

std::string shortName(const Val* val) { return fmt::format("T{}", val->id()); }

// The name of the output, else of the input; empty without one.
std::string labelOf(const Fusion& fusion, const TensorView* tv) {
  const int64_t output = positionIn(fusion.outputs(), tv);
  const int64_t input = positionIn(fusion.inputs(), tv);
  return output < std::ssize(fusion.outputs()) && !fusion.outputNames()[output].empty() ? fusion.outputNames()[output]
         : input < std::ssize(fusion.inputs())                                          ? fusion.inputNames()[input]
                                                                                        : "";
}

int64_t bytesOf(const TensorView* tv) { return tv->numel() * dataTypeSize(tv->dtype()); }

// Adjacent runs are one range; beyond the first kMostExplainedRanges, ranges are left out.
ExplainedRanges rangesOf(const IndexRuns& runs) {
  ExplainedRanges ranges;
  const auto add = [&](int64_t begin, int64_t end) {
    if (!ranges.list.empty() && ranges.list.back().second == begin) {
      ranges.list.back().second = end;
    } else if (ranges.list.size() < kMostExplainedRanges) {
      ranges.list.emplace_back(begin, end);
    } else {
      ranges.more = true;
    }
  };
  for (const IndexRun& r : runs) {
    const int64_t pieces = r.step == 1 ? 1 : r.count;
    for (int64_t k = 0; k < pieces && !ranges.more; k++) {
      add(r.start + k * r.step, r.start + k * r.step + r.count / pieces);
    }
  }
  return ranges;
}

// The tile of each rank of the mesh; empty if no digits describe the parts.
std::vector<ExplainedTile> explainTiles(const ShardState& state) {
  if (state.hasOpaqueDim()) {
    return {};
  }
  return mapped(state.mesh.devices(), [&](int64_t rank) {
    return ExplainedTile{rank, mapped(heldPart(state, rank).dims, rangesOf)};
  });
}

ExplainedTensor explainTensor(const TensorView* tv, int64_t rank, const std::map<int64_t, std::string>& reasons) {
  const ShardState state = shardState(tv);
  ExplainedTensor t;
  t.name = shortName(tv);
  t.label = labelOf(tv->fusion(), tv);
  t.dtype = tv->dtype();
  t.sizes = tv->constantShape();
  t.localSizes = heldPart(state, rank).sizes();
  // the argument determines the layout of an input
  t.memoryOrder = tv->hasAllocation() && !tv->isFusionInput() ? tv->memoryOrder() : std::vector<int64_t>();
  t.sharding = tv->hasDeviceMesh() ? state.toString() : "on every rank";
  t.madeBy = tv->definition() == nullptr ? "input" : std::string(tv->definition()->opName());
  const auto reason = reasons.find(tv->id());
  t.reason = reason != reasons.end() ? reason->second : tv->isUserSharded() && !tv->isFusionInput() ? "as written" : "";
  t.isOutput = tv->isFusionOutput();
  if (tv->hasDeviceMesh()) {
    t.mesh = state.mesh.toString();
    t.sumsDim = tv->partialDim();
    t.tiles = explainTiles(state);
  }
  t.sums = mapped(state.partial, [&](int64_t axis) { return state.mesh.axisName(axis); });
  return t;
}

ExplainedEdge explainEdge(const Expr* e, int64_t operand, const HaloExchanges& halos) {
  const TensorView* result = e->tensorOutput();
  const Edge edge = edgeRelation(e, operand, result);
  ExplainedEdge out{.from = shortName(e->input(operand)),
                    .to = shortName(result),
                    .op = std::string(e->opName()),
                    .relation = std::string(name(edge.relation)),
                    .reason = edge.relation == EdgeRelation::Aligned ? "" : edge.reason};
  if (const HaloExchanges::Place* place = halos.find(e, operand)) {
    out.moves.push_back(toString(place->step));
    out.moveBytes.push_back(place->isFirst ? halos.exchange(*place).received * dataTypeSize(result->dtype()) : 0);
  }
  if (e->kind() == ExprKind::Redistribute && !edge.held.mesh.empty()) {
    const std::vector<CommStep> steps = e->attributes().plan.value_or(std::vector<CommStep>());
    const std::vector<int64_t> extents = result->constantShape();
    const int64_t size = dataTypeSize(result->dtype());
    for (const CommStep& step : steps) {
      out.moves.push_back(step.toString());
      out.moveBytes.push_back(elementsReceived(step, extents) * size);
    }
    out.leastBytes = leastElements(edge.held, shardState(result)) * static_cast<double>(size);
    out.stateBytes = largestState(steps, extents) * size;
  }
  return out;
}

std::string_view nameOf(SegmentKind kind) {
  const std::optional<HostStepKind> step = stepKindOf(kind);
  return step ? name(*step) : "view";
}

// Ops that stand alone, by id: no kernel grows over them.
using FixedOps = std::map<int64_t, SegmentKind>;

FixedOps fixedOps(const std::vector<Segment>& segments) {
  FixedOps fixed;
  for (const Segment& s : segments) {
    for (const Expr* e : s.group.exprs) {
      if (s.kind != SegmentKind::Kernel && s.kind != SegmentKind::View) {
        fixed[e->id()] = s.kind;
      }
    }
  }
  return fixed;
}

// The ops next to a kernel that no kernel can contain.
std::string fixedNeighbours(const Segment& s, const FixedOps& fixed) {
  std::vector<std::string> texts;
  auto stands = [&](const Expr* e, const TensorView* tv, std::string_view how) {
    auto it = e == nullptr ? fixed.end() : fixed.find(e->id());
    if (it != fixed.end()) {
      texts.push_back(it->second == SegmentKind::Communicate
                          ? fmt::format("{} {} communication", tv->toString(), how)
                          : fmt::format("{} {} the {} step {}", tv->toString(), how, nameOf(it->second), e->opName()));
    }
  };
  for (const TensorView* in : s.group.inputs) {
    stands(in->definition(), in, "comes from");
  }
  for (const TensorView* out : s.group.outputs) {
    for (const Expr* use : s.group.fusion->uses(out)) {
      stands(use, out, "goes to");
    }
  }
  return joined(texts, ", ");
}

// The ops of a program by the name of their result: its text, cut into lines.
std::map<std::string, std::string> linesByResult(const Fusion& fusion) {
  std::map<std::string, std::string> lines;
  std::istringstream text(fusion.toString());
  for (std::string line; std::getline(text, line);) {
    const size_t begin = line.find_first_not_of(' ');
    const size_t end = line.find(" = ");
    if (begin != std::string::npos && end != std::string::npos) {
      const std::string results = line.substr(begin, end - begin);
      lines[results.substr(0, results.find(','))] = line.substr(begin);
    }
  }
  return lines;
}

std::vector<ExplainedMesh> explainMeshes(const Fusion& fusion) {
  std::vector<ExplainedMesh> meshes;
  for (const TensorView* tv : fusion.tensors()) {
    const DeviceMesh& mesh = tv->getDeviceMesh();
    if (mesh.empty() || std::ranges::find(meshes, mesh.toString(), &ExplainedMesh::name) != meshes.end()) {
      continue;
    }
    const auto axis = [&](int64_t k) { return ExplainedAxis{mesh.axisName(k), mesh.axisSize(k).constValue()}; };
    meshes.push_back({mesh.toString(), mapped(std::views::iota(int64_t{0}, mesh.numAxes()), axis), mesh.devices()});
  }
  return meshes;
}

ExplainedStep explainStep(const Segment& s, const FixedOps& fixed, const std::map<std::string, std::string>& lines) {
  ExplainedStep step;
  step.kind = nameOf(s.kind);
  const std::string result = s.group.outputs.empty() ? "" : s.group.outputs[0]->toString();
  step.name = s.kind == SegmentKind::Kernel ? fmt::format("{} {}", s.plan.kind, result) : result;
  for (const Expr* e : s.group.exprs) {
    step.ops.emplace_back(e->opName());
    const auto line = lines.find(shortName(e->output()));
    step.text.push_back(line == lines.end() ? std::string(e->opName()) : line->second);
  }
  step.reads = mapped(s.group.inputs, &TensorView::toString);
  step.writes = mapped(s.group.outputs, &TensorView::toString);
  step.bytesRead = sumOf(s.group.inputs, bytesOf);
  step.bytesWritten = sumOf(s.group.outputs, bytesOf);
  step.joins = s.joins;
  step.boundary = s.boundary.empty() && s.kind == SegmentKind::Kernel ? fixedNeighbours(s, fixed) : s.boundary;
  return step;
}

// Whether a step of the host program executes a segment; a view has no step.
bool makes(const Step& step, const Segment& s, const HostProgram& host) {
  return s.kind != SegmentKind::View && step.kind != HostStepKind::Copy && !s.group.outputs.empty() &&
         host.tensors[step.writes[0]].val == s.group.outputs[0]->id();
}

// Segments without a step stay after the segment before them.
std::vector<const Segment*> inOrderOfIssue(const std::vector<Segment>& segments, const HostProgram& host) {
  std::vector<std::pair<int64_t, const Segment*>> positions;
  for (const Segment& s : segments) {
    const auto step = std::ranges::find_if(host.steps, [&](const Step& h) { return makes(h, s, host); });
    const int64_t before = positions.empty() ? -1 : positions.back().first;
    positions.emplace_back(step == host.steps.end() ? before : step - host.steps.begin(), &s);
  }
  std::ranges::stable_sort(positions, {}, &std::pair<int64_t, const Segment*>::first);
  return mapped(positions, &std::pair<int64_t, const Segment*>::second);
}

// The tensors in memory while a rank runs its steps, in the order of their first step.
std::vector<ExplainedBuffer> explainBuffers(const HostProgram& program) {
  const int64_t last = std::ssize(program.steps) - 1;
  auto buffers = mapped(indices(program.tensors), [&](int64_t number) {
    const TensorPlan& t = program.tensors[number];
    const TensorSizes& sizes = program.sizes().tensors[number];
    const std::string place = t.place == Place::Input ? "argument" : t.place == Place::Output ? "result" : "arena";
    const bool stays = t.place != Place::Arena;
    return ExplainedBuffer{fmt::format("T{}", t.val), place, sizes.offset, sizes.bytes, stays ? 0 : last + 1,
                           stays ? last : -1};
  });
  for (int64_t i = 0; i <= last; i++) {
    const Step& s = program.steps[i];
    for (const auto* list : {&s.reads, &s.writes, &s.operands}) {
      for (const int64_t t : *list) {
        buffers[t].firstStep = std::min(buffers[t].firstStep, i);
        buffers[t].lastStep = std::max(buffers[t].lastStep, i);
      }
    }
    for (const int64_t k : indices(s.workspaces)) {
      const WorkspaceSizes& w = program.sizes().steps[i].workspaces[k];
      if (!s.workspaces[k].zeroed && w.bytes > 0) {
        buffers.push_back({"workspace", "arena", w.offset, w.bytes, i, i});
      }
    }
  }
  std::erase_if(buffers, [](const ExplainedBuffer& b) { return b.firstStep > b.lastStep; });
  std::ranges::stable_sort(buffers, {}, &ExplainedBuffer::firstStep);
  return buffers;
}

// Of calls whose tensors stay where they were. Ranks without NCCL have no collectives in graphs.
std::vector<ExplainedGraph> explainGraphs(const HostProgram& program) {
  std::vector<ExplainedGraph> all;
  if (program.device->info().target != tile::Target::Gpu) {
    return all;
  }
  std::vector<int64_t> ends(program.steps.size());  // of the graph that begins with a step; 0: none does
  for (const std::vector<Replay>& replays : {replaysOf(program), jointReplaysOf(program)}) {
    for (const Replay& r : replays) {
      ends[r.begin()] = std::max(ends[r.begin()], r.end());
    }
  }
  for (int64_t i = 0; i < std::ssize(program.steps);) {
    const Step& first = program.steps[i];
    if (ends[i] == 0) {
      const std::optional<std::string> why = whyOnHost(first, program.device->info());
      all.push_back({1, first.name, first.name, why.value_or("one step alone is launched as it is")});
      i++;
      continue;
    }
    all.push_back({ends[i] - i, first.name, program.steps[ends[i] - 1].name, ""});
    i = ends[i];
  }
  return all;
}

}  // namespace

int64_t Explanation::bytesReceived() const { return sumOf(communications, &ExplainedCommunication::bytesReceived); }

Explanation explain(const CompiledProgram& compiled, int64_t rank) {
  const SegmentedProgram& program = compiled.program;
  const auto tensorOf = [&](const TensorView* tv) { return explainTensor(tv, rank, program.reasons); };
  Explanation result{.rank = rank,
                     .device = compiled.host->device->info().describe(),
                     .program = program.planned->toString(),
                     .sizes = program.sizes.toLines(),
                     .meshes = explainMeshes(*program.planned),
                     .tensors = mapped(program.planned->tensors(), tensorOf),
                     .buffers = explainBuffers(*compiled.host),
                     .graphs = explainGraphs(*compiled.host),
                     .arenaBytes = compiled.host->sizes().arenaBytes,
                     .peakBytes = compiled.host->sizes().peakBytes,
                     .remarks = program.remarks};
  const HaloExchanges halos(*program.planned);
  for (const Expr* e : program.planned->exprs()) {
    if (e->output()->isTensor()) {
      for (const int64_t operand : e->tensorPositions()) {
        result.edges.push_back(explainEdge(e, operand, halos));
      }
    }
  }
  const FixedOps fixed = fixedOps(program.segments);
  const std::map<std::string, std::string> lines = linesByResult(*program.local);
  for (const Segment* s : inOrderOfIssue(program.segments, *compiled.host)) {
    result.steps.push_back(explainStep(*s, fixed, lines));
    const auto step =
        std::ranges::find_if(compiled.host->steps, [&](const Step& h) { return makes(h, *s, *compiled.host); });
    result.steps.back().runsBeside = step != compiled.host->steps.end() && step->runsBeside;
  }
  for (const int64_t i : indices(compiled.host->steps)) {
    const Step& s = compiled.host->steps[i];
    if (s.kind == HostStepKind::Copy) {
      const int64_t bytes = compiled.host->sizes().tensors[s.writes[0]].bytes;
      result.steps.push_back({.kind = "copy", .name = s.name, .bytesRead = bytes, .bytesWritten = bytes});
    }
    if (s.kind == HostStepKind::Communicate) {
      const std::string tensor = s.name.substr(s.name.find(' ') + 1);
      result.communications.push_back({s.comm.kind, s.comm.form(), tensor, s.comm.team.ranks, s.comm.axes,
                                       compiled.host->sizes().steps[i].comm.bytesReceived,
                                       compiled.host->sizes().steps[i].comm.program});
    }
  }
  return result;
}

}  // namespace meshfuse
