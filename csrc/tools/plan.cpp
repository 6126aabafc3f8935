// meshfuse plan: chooses the sharding of every tensor, prints the report, and writes the annotated program.
#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "autoplan/autoplan.h"
#include "base/error.h"
#include "exec/plan_within_memory.h"
#include "ir/fusion.h"
#include "tools/machine_file.h"
#include "tools/options.h"
#include "tools/output_file.h"
#include "tools/plan_page.h"
#include "tools/program.h"

namespace meshfuse {

namespace {

// Without stages if no pipeline fits in memory. `ops`: of the forward pass, by virtual stage.
nlohmann::ordered_json pipelineOf(const PlannedPipeline& p) {
  using Json = nlohmann::ordered_json;
  Json stages = Json::array();
  for (const PlannedStage& s : p.stages) {
    stages.push_back({{"firstDevice", s.firstDevice},
                      {"mesh", s.mesh.axisSizes()},
                      {"ops", s.ops},
                      {"numOps", s.numOps},
                      {"forward", s.forward},
                      {"backward", s.backward},
                      {"update", s.update},
                      {"memory", s.memory}});
  }
  Json json{{"microBatches", p.microBatches}};
  if (!p.stages.empty()) {
    json.update({{"schedule", p.scheduleText()},
                 {"virtualStages", p.virtualStages},
                 {"seconds", p.seconds},
                 {"bound", p.bound},
                 {"gap", p.gap()},
                 {"idle", p.idle}});
  }
  json["stages"] = std::move(stages);
  return json;
}

// plan.json: times in seconds, memory in bytes.
nlohmann::ordered_json reportOf(const AutoPlan& plan) {
  using Json = nlohmann::ordered_json;
  const auto orNull = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  Json json{{"mesh", meshText(plan.mesh)},
            {"seconds", plan.seconds},
            {"bound", plan.bound},
            {"gap", plan.gap()},
            {"commBytes", plan.commBytes},
            {"peakMemory", plan.peakMemory},
            {"timeLimitReached", plan.timeLimitReached}};
  json["pins"] = json["ops"] = json["ideas"] = Json::array();
  for (const PlannedTensor& t : plan.pins) {
    json["pins"].push_back(
        {{"tensor", t.name}, {"sharding", t.sharding}, {"byUser", t.byUser}, {"nextBest", orNull(t.nextBest)}});
  }
  for (const PlannedOp& op : plan.ops) {
    json["ops"].push_back({{"op", op.name},
                           {"strategy", op.strategy},
                           {"compute", op.compute},
                           {"communication", op.communication},
                           {"bytes", op.bytes}});
  }
  for (const PlannedIdea& idea : plan.ideas) {
    json["ideas"].push_back({{"idea", idea.name}, {"seconds", orNull(idea.seconds)}});
  }
  if (plan.pipeline) {
    json["pipeline"] = pipelineOf(*plan.pipeline);
  }
  return json;
}

// What --json prints.
nlohmann::ordered_json jsonOf(const AutoPlan& plan) {
  nlohmann::ordered_json json{
      {"seconds", plan.seconds},     {"bound", plan.bound},           {"gap", plan.gap()},
      {"commBytes", plan.commBytes}, {"peakMemory", plan.peakMemory}, {"pins", nlohmann::ordered_json::object()}};
  for (const PlannedTensor& t : plan.pins) {
    json["pins"][t.name] = t.sharding;
  }
  if (plan.pipeline) {
    json["pipeline"] = pipelineOf(*plan.pipeline);
  }
  return json;
}

}  // namespace

int64_t planProgram(const AutoPlanOptions& options) {
  const std::unique_ptr<Fusion> fusion = loadGlobalProgram(options.program);
  const DistributedConfig machines = machineOf(options.machine);
  const OptimizationConfig wishes{.maxSeconds = options.seconds,
                                  .allowUneven = options.uneven,
                                  .shardOptimizerState = !options.wholeState,
                                  .mesh = meshAxes(options.program),
                                  .sizes = symbolSizes(*fusion, options.program),
                                  .alternatives = !options.json || !options.directory.empty(),
                                  .microBatches = options.microBatches,
                                  .stages = options.stages};
  const AutoPlan plan = planWithinMemory(*fusion, machines, wishes, options.directory);
  if (!options.directory.empty()) {
    writeWhole("plan", options.directory + "/plan.json", reportOf(plan).dump(2) + "\n");
    const std::string title = std::filesystem::path(options.program.file).filename().string();
    writeWhole("plan", options.directory + "/plan.html", planPage(title, plan, machines));
  }
  if (options.json) {
    fmt::print("{}\n", jsonOf(plan).dump(2));
    return kSuccess;
  }
  fmt::print("{}", plan.text());
  if (!options.directory.empty()) {
    fmt::print("wrote {}/plan.fir, plan.txt, plan.json and plan.html\n", options.directory);
  }
  return kSuccess;
}

}  // namespace meshfuse
