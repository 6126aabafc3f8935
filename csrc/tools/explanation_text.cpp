#include "tools/explanation_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/ranges.h"
#include "exec/explain.h"

namespace meshfuse {

namespace {

using Json = nlohmann::ordered_json;

std::string shapeOf(const ExplainedTensor& t) { return fmt::format("{}[{}]", name(t.dtype), fmt::join(t.sizes, ", ")); }

std::string tensorsText(const Explanation& e) {
  const auto nameOf = [](const ExplainedTensor& t) { return t.label.empty() ? t.name : t.name + " " + t.label; };
  size_t nameWidth = 4;
  size_t shapeWidth = 0;
  size_t shardingWidth = 0;
  for (const ExplainedTensor& t : e.tensors) {
    nameWidth = std::max(nameWidth, t.label.empty() ? 0 : nameOf(t).size());
    shapeWidth = std::max(shapeWidth, shapeOf(t).size());
    shardingWidth = std::max(shardingWidth, t.sharding.size());
  }
  std::string text;
  for (const ExplainedTensor& t : e.tensors) {
    const std::string order =
        t.memoryOrder.empty() ? "" : fmt::format(", in memory in the order [{}]", fmt::join(t.memoryOrder, ", "));
    text += fmt::format("  {:<{}} {:<{}}  {:<{}}  local [{}]  {}{}{}{}\n", nameOf(t), nameWidth, shapeOf(t), shapeWidth,
                        t.sharding, shardingWidth, fmt::join(t.localSizes, ", "), t.madeBy,
                        t.isOutput ? ", output" : "", order, t.reason.empty() ? "" : "; " + t.reason);
  }
  return text;
}

std::string edgeText(const ExplainedEdge& e) {
  return fmt::format("  {} -> {} {}: {}{}{}\n", e.from, e.to, e.op, e.relation, e.reason.empty() ? "" : "; " + e.reason,
                     e.moves.empty() ? "" : "; by " + joined(e.moves, ", "));
}

std::string stepText(const ExplainedStep& s, const Terminal& terminal) {
  std::string text = fmt::format("  {} {}: {}{}\n      reads {} ({} bytes), writes {} ({} bytes)\n", s.kind, s.name,
                                 fmt::join(s.ops, ", "), s.runsBeside ? "; beside the next steps" : "",
                                 s.reads.empty() ? "nothing" : joined(s.reads, ", "), s.bytesRead,
                                 fmt::join(s.writes, ", "), s.bytesWritten);
  text += joined(s.joins, "", [&](const std::string& join) { return terminal.quiet("      joined: " + join) + "\n"; });
  if (!s.boundary.empty()) {
    text += terminal.quiet(fmt::format("      no larger: {}", s.boundary)) + "\n";
  }
  return text;
}

// The indices of a dim that a rank holds, as begin:end separated by commas.
std::string rangesText(const ExplainedRanges& ranges) {
  const auto text = [](const auto& range) { return fmt::format("{}:{}", range.first, range.second); };
  return joined(ranges.list, ",", text) + (ranges.more ? ",..." : "");
}

// Times in nanoseconds from the begin of the first span.
Json timelineJson(const Timeline& timeline) {
  int64_t zero = std::numeric_limits<int64_t>::max();
  for (const TraceSpan& s : timeline | std::views::join) {
    zero = std::min(zero, s.begin);
  }
  Json spans = Json::array();
  for (const int64_t rank : indices(timeline)) {
    for (const TraceSpan& s : timeline[rank]) {
      spans.push_back({{"rank", rank},
                       {"row", name(s.row)},
                       {"queue", s.queue},
                       {"name", s.name},
                       {"begin", s.begin - zero},
                       {"end", s.end - zero},
                       {"step", s.step},
                       {"bytes", s.bytes}});
    }
  }
  return spans;
}

// In seconds; without `measured` where nothing was.
Json timesJson(const StepTimes& times) {
  const auto timeJson = [](const PredictedTime& t) {
    Json json{{"step", t.name}, {"predicted", t.predicted}};
    if (t.measured) {
      json["measured"] = *t.measured;
    }
    return json;
  };
  return {{"steps", mapped(times.steps, timeJson)}, {"call", timeJson(times.call)}};
}

std::string graphsText(const Explanation& e, const Terminal& terminal) {
  if (e.graphs.empty()) {
    return "";
  }
  return terminal.heading("CUDA graphs of a call whose tensors have the addresses of the call before") + "\n" +
         joined(e.graphs, "", [](const ExplainedGraph& g) {
           if (!g.reason.empty()) {
             return fmt::format("  no graph: {}: {}\n", g.first, g.reason);
           }
           return g.steps == 1 ? fmt::format("  graph of one step: {}\n", g.first)
                               : fmt::format("  graph of {} steps: {} to {}\n", g.steps, g.first, g.last);
         });
}

}  // namespace

std::string explanationText(const Explanation& e, const Terminal& terminal) {
  std::string text = e.device.empty() ? "" : terminal.heading("device") + "\n  " + e.device + "\n";
  text += terminal.heading("tensors of the planned program") + "\n" + tensorsText(e);
  text += terminal.heading("edges: the elements that a rank holds, compared with those that it needs") + "\n";
  text += joined(e.edges, "", edgeText);
  text +=
      terminal.heading("collectives, bytes that the busiest rank receives (of an all-reduce: the mean rank)") + "\n";
  for (const ExplainedCommunication& c : e.communications) {
    text += fmt::format("  {} {}{} among [{}]: {}\n", c.name(), c.tensor,
                        c.axes.empty() ? "" : fmt::format(" over {}", joined(c.axes, ", ")), fmt::join(c.team, ", "),
                        bytesText(c.bytesReceived));
  }
  text += e.communications.empty() ? "  none\n" : fmt::format("  all together: {}\n", bytesText(e.bytesReceived()));
  text += terminal.heading("steps of a rank, on its local tensors") + "\n";
  text += joined(e.steps, "", [&](const ExplainedStep& s) { return stepText(s, terminal); });
  text += graphsText(e, terminal);
  text += terminal.heading(fmt::format("memory of rank {}", e.rank)) +
          fmt::format("\n  peak {}: arguments, results and an arena of {}\n", bytesText(e.peakBytes),
                      bytesText(e.arenaBytes));
  if (!e.remarks.empty()) {
    text += fmt::format("{}\n  {}\n", terminal.heading("remarks of passes"), fmt::join(e.remarks, "\n  "));
  }
  return text;
}

std::string explanationJson(const Explanation& e, const Timeline& timeline, const std::optional<StepTimes>& times) {
  Json j;
  j["rank"] = e.rank;
  j["device"] = e.device;
  j["program"] = e.program;
  j["meshes"] = mapped(e.meshes, [](const ExplainedMesh& m) {
    const auto axisJson = [](const ExplainedAxis& a) { return Json{{"name", a.name}, {"size", a.size}}; };
    return Json{{"name", m.name}, {"axes", mapped(m.axes, axisJson)}, {"ranks", m.ranks}};
  });
  j["tensors"] = mapped(e.tensors, [](const ExplainedTensor& t) {
    const auto tileJson = [](const ExplainedTile& tile) {
      return Json{{"rank", tile.rank}, {"holds", mapped(tile.dims, rangesText)}};
    };
    return Json{{"name", t.name},
                {"label", t.label},
                {"dtype", name(t.dtype)},
                {"sizes", t.sizes},
                {"local_sizes", t.localSizes},
                {"memory_order", t.memoryOrder},
                {"sharding", t.sharding},
                {"made_by", t.madeBy},
                {"reason", t.reason},
                {"output", t.isOutput},
                {"mesh", t.mesh},
                {"sums_over", t.sums},
                {"sums_dim", t.sumsDim},
                {"tiles", mapped(t.tiles, tileJson)}};
  });
  j["edges"] = mapped(e.edges, [](const ExplainedEdge& x) {
    return Json{{"from", x.from},
                {"to", x.to},
                {"op", x.op},
                {"relation", x.relation},
                {"reason", x.reason},
                {"moves", x.moves},
                {"move_bytes", x.moveBytes},
                {"least_bytes", x.leastBytes},
                {"state_bytes", x.stateBytes}};
  });
  j["communications"] = mapped(e.communications, [](const ExplainedCommunication& c) {
    return Json{{"kind", c.name()},
                {"tensor", c.tensor},
                {"axes", c.axes},
                {"team", c.team},
                {"bytes_received", c.bytesReceived}};
  });
  j["steps"] = mapped(e.steps, [](const ExplainedStep& s) {
    return Json{{"kind", s.kind},
                {"name", s.name},
                {"ops", s.ops},
                {"reads", s.reads},
                {"writes", s.writes},
                {"bytes_read", s.bytesRead},
                {"bytes_written", s.bytesWritten},
                {"runs_beside", s.runsBeside},
                {"boundary", s.boundary},
                {"joins", s.joins},
                {"text", s.text}};
  });
  j["buffers"] = mapped(e.buffers, [](const ExplainedBuffer& b) {
    return Json{{"tensor", b.tensor}, {"place", b.place},          {"offset", b.offset},
                {"bytes", b.bytes},   {"first_step", b.firstStep}, {"last_step", b.lastStep}};
  });
  j["graphs"] = mapped(e.graphs, [](const ExplainedGraph& g) {
    return Json{{"steps", g.steps}, {"first", g.first}, {"last", g.last}, {"reason", g.reason}};
  });
  if (!timeline.empty()) {
    j["timeline"] = timelineJson(timeline);
  }
  if (times) {
    j["times"] = timesJson(*times);
  }
  j["remarks"] = e.remarks;
  j["arena_bytes"] = e.arenaBytes;
  j["peak_bytes"] = e.peakBytes;
  j["bytes_received"] = e.bytesReceived();
  return j.dump(2) + "\n";
}

}  // namespace meshfuse
