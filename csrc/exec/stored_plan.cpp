#include "exec/stored_plan.h"

#include <fmt/ranges.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/build_id.h"
#include "base/disk_cache.h"
#include "base/entry_texts.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/ranges.h"
#include "exec/parsed_fusion.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

constexpr std::string_view kOfClass = "class";
constexpr std::string_view kAcceptsBetween = "accepts between";

// "NUMBER TEXT" for each entry, by Val id
std::vector<std::string> linesOf(const std::map<int64_t, std::string>& byVal) {
  return mapped(byVal, [](const auto& entry) { return fmt::format("{} {}", entry.first, entry.second); });
}

std::map<int64_t, std::string> byVal(const std::vector<std::string>& lines) {
  std::map<int64_t, std::string> result;
  for (const std::string& line : lines) {
    const size_t space = std::min(line.find(' '), line.size());
    result[EntryReader::number(std::string_view(line).substr(0, space))] =
        line.substr(std::min(space + 1, line.size()));
  }
  return result;
}

// "communicates redistributes 120"
std::string textOf(const PlanFacts& facts) {
  return fmt::format("{} {} {}", facts.communicates ? 1 : 0, facts.redistributes ? 1 : 0, facts.exprs);
}

PlanFacts factsFrom(std::string_view text) {
  const std::vector<int64_t> numbers = EntryReader::numbers(text);
  check(numbers.size() == 3, "[stored plan] {} facts; expected 3", numbers.size());
  return {.communicates = numbers[0] != 0, .redistributes = numbers[1] != 0, .exprs = numbers[2]};
}

}  // namespace

std::optional<Hash128> keyOfPlan(const Fusion& fusion, std::span<const std::vector<int64_t>> globalSizes,
                                 const ShapeClass& sizes, const PassSettings& passes, std::string_view printed) {
  if (!passes.verify || buildId().empty() || !environmentText("MESHFUSE_DUMP").empty()) {
    return std::nullopt;
  }
  // passes number new values after all others, and may visit exprs in the order of their ids; errors name the builders
  const auto idAndBuilder = [](const Expr* e) { return fmt::format("{} {}", e->id(), e->attributes().calledAs); };
  std::string text = fmt::format("plan of build {}\n{} values, exprs {}\n", buildId(), fusion.numVals(),
                                 fmt::join(mapped(fusion.exprs(), idAndBuilder), ", "));
  for (const std::vector<int64_t>& of : globalSizes) {
    text += fmt::format("[{}]", fmt::join(of, " "));
  }
  text += fmt::format("\n{} {} {} {} {} {}\n", passes.reduceInFloat, passes.optimizeReshards, passes.callBytes,
                      passes.bucketBytes, passes.overlapCommunication,
                      passes.planner ? toString(*passes.planner) : "planner of the program");
  for (const auto& [symbol, size] : sizes.sizes) {
    text += fmt::format("{} is {}\n", symbol, size.toString());
  }
  for (const auto& [symbol, value] : sizes.values) {
    text += fmt::format("{} is {}\n", symbol, value);
  }
  return hashText(fmt::format("{}{}\n{}", text, sizes.isConstant() ? "" : joined(sizes.toLines(), "\n"),
                              printed.empty() ? fusion.toString() : printed));
}

std::shared_ptr<PlannedProgram> loadPlan(DiskCache& disk, Hash128 key, const Fusion& fusion, const ShapeClass& sizes) {
  const std::optional<std::string> bytes = disk.load(key);
  if (!bytes) {
    return nullptr;
  }
  try {
    EntryReader reader{*bytes};
    PlannedProgram result{.sizes = sizes};
    const bool isOfClass = reader.flag(kOfClass);
    const std::string_view why = reader.text();
    if (!sizes.isConstant() && !isOfClass) {
      result.sizes = {.whyConstant = std::string(why)};
    }
    result.acceptsBetween = reader.flag(kAcceptsBetween);
    result.remarks = reader.texts();
    result.reasons = byVal(reader.texts());
    Builders builders = buildersFrom(reader.texts(), fusion);
    result.facts = factsFrom(reader.text());
    result.text = std::make_shared<const std::string>(reader.text());
    // a later call plans anew
    result.planned = ParsedFusion(result.text, std::move(builders), [&disk, key] { disk.drop(key); });
    reader.finish();
    return std::make_shared<PlannedProgram>(std::move(result));
  } catch (const UserError&) {
    disk.drop(key);
    return nullptr;
  }
}

void storePlan(DiskCache& disk, Hash128 key, const PlannedProgram& program) {
  EntryWriter writer;
  writer.add(program.sizes.isConstant() ? "" : kOfClass);
  writer.add(program.sizes.whyConstant);
  writer.add(program.acceptsBetween ? kAcceptsBetween : "");
  writer.add(program.remarks);
  writer.add(linesOf(program.reasons));
  writer.add(linesOf(buildersOf(*program.planned)));
  writer.add(textOf(factsOf(program)));
  writer.add(*program.text);
  disk.store(key, writer.bytes());
}

void readPlanned(PlannedProgram& program, const Fusion& fusion) {
  std::string text = program.planned->toString();
  try {
    const Builders builders = buildersFrom(linesOf(buildersOf(*program.planned)), fusion);
    program.planned = parseWith(builders, text);
    program.text = std::make_shared<const std::string>(std::move(text));
  } catch (const UserError& error) {
    throwInternalError(fmt::format("[stored plan] {}\nin the text of a planned program\n{}", error.what(),
                                   program.planned->toString()));
  }
}

}  // namespace meshfuse
