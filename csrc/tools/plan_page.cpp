#include "tools/plan_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autoplan/autoplan.h"
#include "autoplan/plan_files.h"
#include "base/ranges.h"
#include "tools/page.h"
#include "tools/page_markup.h"
#include "tools/page_tiles.h"

namespace meshfuse {

namespace {

constexpr int64_t kDrawnRanks = 256;  // a larger mesh is told in words

std::string timeOf(double seconds) {
  return fmt::format("<span class=\"bytes\" title=\"{:.6g} s\">{}</span>", seconds, planTime(seconds));
}

// The time beside that of the plan: +3.5%
std::string besides(const std::optional<double>& seconds, double plan) {
  return seconds ? fmt::format("{} <span class=\"quiet\">{:+.2f}%</span>", timeOf(*seconds),
                               plan > 0 ? 100 * (*seconds / plan - 1) : 0)
                 : std::string("<span class=\"quiet\">none</span>");
}

std::string bar(std::string_view kind, double part) {
  return fmt::format("<div class=\"bar {}\"><span style=\"width:{:.2f}%\"></span></div>", kind,
                     100 * std::clamp(part, 0.0, 1.0));
}

std::string table(const std::vector<std::string_view>& head, const std::string& rows) {
  return fmt::format(
      "<div class=\"card scroll\"><table><thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table></div>\n",
      joined(head, "", [](auto text) { return fmt::format("<th>{}</th>", text); }), rows);
}

std::string row(const std::vector<std::string>& cells) {
  return "<tr>" + joined(cells, "", [](const std::string& cell) { return "<td>" + cell + "</td>"; }) + "</tr>\n";
}

std::string chip(std::string_view text) { return fmt::format("<span class=\"chip\">{}</span>", escaped(text)); }

ExplainedMesh explained(const DeviceMesh& mesh) {
  const auto axis = [&](int64_t k) { return ExplainedAxis{mesh.axisName(k), mesh.axisSizes()[k]}; };
  return {mesh.toString(), mapped(std::views::iota(int64_t{0}, mesh.numAxes()), axis), mesh.devices()};
}

std::string meshSection(const AutoPlan& plan, const DistributedConfig& machines) {
  std::string rows;
  for (int64_t axis = 0; axis < plan.mesh.numAxes(); axis++) {
    const LinkSpeed link = linkOf(machines, plan.mesh, axis);
    const auto cut = std::ranges::count_if(plan.pins, [&](const PlannedTensor& t) { return contains(t.axes, axis); });
    rows += row({chip(plan.mesh.axisName(axis)), std::to_string(plan.mesh.axisSizes()[axis]),
                 planBytes(link.bandwidth) + "/s", timeOf(link.latency), counted(static_cast<size_t>(cut), "tensor")});
  }
  const std::string picture = plan.mesh.numDevices() <= kDrawnRanks
                                  ? "<div class=\"meshes\">" + meshPicture(explained(plan.mesh)) + "</div>\n"
                                  : std::string();
  return section("mesh", "Mesh", "Ranks are numbered machine by machine. An axis has the link that its ranks share.",
                 picture + table({"axis", "ranks", "bandwidth", "latency", "annotated tensors that it cuts"}, rows));
}

std::string shardingsSection(const AutoPlan& plan) {
  std::string rows;
  for (const PlannedTensor& t : plan.pins) {
    rows += row({withTensors(t.name, TensorScope::OfRank), chip(t.sharding),
                 t.byUser ? "<span class=\"quiet\">as annotated</span>" : besides(t.nextBest, plan.seconds)});
  }
  return section(
      "shardings", "Shardings",
      "The tensors that the plan annotates; all others follow by propagation. Next best: the time of the best "
      "plan in which the tensor has another sharding.",
      table({"tensor", "sharding", "next best"}, rows));
}

std::string opsSection(const AutoPlan& plan) {
  std::vector<PlannedOp> ops = plan.ops;
  const auto secondsOf = [](const PlannedOp& op) { return op.compute + op.communication; };
  std::ranges::stable_sort(ops, std::greater<>(), secondsOf);
  const double longest = ops.empty() ? 1 : std::max(1e-30, secondsOf(ops[0]));
  std::string rows;
  for (const PlannedOp& op : ops) {
    rows += row({withTensors(op.name, TensorScope::OfRank), escaped(op.strategy),
                 timeOf(op.compute) + bar("kernel", op.compute / longest),
                 timeOf(op.communication) + bar("comm", op.communication / longest), planBytes(op.bytes)});
  }
  return section("ops", "Ops", "Each with the elementwise ops that follow it, longest first.",
                 table({"op", "strategy", "compute", "communication", "received"}, rows));
}

std::string ideasSection(const AutoPlan& plan) {
  double longest = plan.seconds;
  for (const PlannedIdea& idea : plan.ideas) {
    longest = std::max(longest, idea.seconds.value_or(0));
  }
  const auto line = [&](const std::string& name, const std::optional<double>& seconds) {
    return row({name, besides(seconds, plan.seconds), bar("local", seconds.value_or(0) / std::max(1e-30, longest))});
  };
  std::string rows = line("<b>the plan</b>", plan.seconds);
  for (const PlannedIdea& idea : plan.ideas) {
    rows += line(escaped(idea.name), idea.seconds);
  }
  return section("ideas", "Single ideas",
                 "The best plan if inputs are sharded in one way only; none: it is not possible, or does not fit.",
                 table({"inputs", "time of a call", ""}, rows));
}

std::string pipelineSection(const AutoPlan& plan) {
  if (!plan.pipeline) {
    return {};
  }
  const PlannedPipeline& p = *plan.pipeline;
  const std::string head = fmt::format("A call in {} micro-batches. ", p.microBatches);
  if (p.stages.empty()) {
    return section("pipeline", "Pipeline", head + "No pipeline fits in memory.", "");
  }
  double longest = 1e-30;
  for (const PlannedStage& s : p.stages) {
    longest = std::max(longest, s.forward + s.backward);
  }
  std::string rows;
  for (const PlannedStage& s : p.stages) {
    rows += row({s.devicesText(), withTensors(joined(s.ops, ", "), TensorScope::OfRank), std::to_string(s.numOps),
                 timeOf(s.forward) + bar("kernel", s.forward / longest),
                 timeOf(s.backward) + bar("kernel", s.backward / longest), timeOf(s.update), planBytes(s.memory)});
  }
  const std::string figures =
      "<div class=\"figures\">\n" + figure("schedule", escaped(p.scheduleText()), counted(p.stages.size(), "stage")) +
      figure("time of a call", timeOf(p.seconds),
             fmt::format("{:+.2f}% against the plan without a pipeline",
                         100 * (p.seconds / std::max(1e-30, plan.seconds) - 1))) +
      figure("idle", fmt::format("{:.2f}%", 100 * p.idle), "of the time of all devices") + "</div>\n";
  return section(
      "pipeline", "Pipeline",
      head +
          "Times of a stage are those of a micro-batch, of its update those of a call. Not executed yet: the "
          "annotated program is the plan without a pipeline.",
      figures + table({"devices", "forward ops", "ops", "forward", "backward", "update", "memory"}, rows));
}

}  // namespace

std::string planPage(std::string_view title, const AutoPlan& plan, const DistributedConfig& machines) {
  const std::string figures =
      "<div class=\"figures\">\n" +
      figure("devices", std::to_string(plan.mesh.numDevices()), escaped(meshText(plan.mesh))) +
      figure("time of a call", timeOf(plan.seconds),
             fmt::format("at most {:.2f}% above the best plan", 100 * plan.gap())) +
      figure("received by a device", planBytes(plan.commBytes), "in a call") +
      figure("peak memory of a device", planBytes(plan.peakMemory), "of " + planBytes(machines.memoryPerDevice)) +
      figure("search", plan.timeLimitReached ? "cut off" : "complete",
             plan.timeLimitReached ? "a longer one may find a better plan" : "before the time limit") +
      "</div>\n";
  Explanation ranks;
  if (plan.mesh.numDevices() <= kDrawnRanks) {
    ranks.meshes.push_back(explained(plan.mesh));
  }
  return pageOf({.title = title,
                 .by = "planned by meshfuse",
                 .style = rankColours(ranks),
                 .sections = plan.pipeline
                                 ? std::vector<std::string_view>{"mesh", "shardings", "ops", "ideas", "pipeline"}
                                 : std::vector<std::string_view>{"mesh", "shardings", "ops", "ideas"},
                 .body = figures + meshSection(plan, machines) + shardingsSection(plan) + opsSection(plan) +
                         ideasSection(plan) + pipelineSection(plan)});
}

}  // namespace meshfuse
