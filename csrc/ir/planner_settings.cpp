#include "ir/planner_settings.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/attribute_text.h"

namespace meshfuse {

namespace {

template <class Number>
Number numberOf(std::string_view text, std::string_view what, std::string_view expected = "a number") {
  const std::optional<Number> value = numberIn<Number>(text);
  check(value.has_value(), "{} of the planner is '{}'; expected {}", what, text, expected);
  return *value;
}

}  // namespace

double costAlong(const std::string& axis, const std::map<std::string, double>& costs) {
  const auto cost = costs.find(axis);
  return cost == costs.end() ? 1 : cost->second;
}

std::string toString(const PlannerSettings& settings) {
  std::vector<std::string> parts;
  if (settings.bound) {
    parts.push_back(fmt::format("bound: {}", *settings.bound));
  }
  if (settings.direct == DirectChoice::Fallback) {
    parts.emplace_back("direct: fallback");
  }
  append(parts, mapped(settings.forbid, [](const std::string& move) { return "forbid: " + move; }));
  for (const auto& [axis, cost] : settings.alpha) {
    parts.push_back(fmt::format("alpha {}: {}", axis, cost));
  }
  for (const auto& [axis, cost] : settings.beta) {
    parts.push_back(fmt::format("beta {}: {}", axis, cost));
  }
  if (settings.betaBetween != PlannerSettings().betaBetween) {
    parts.push_back(fmt::format("between: {}", settings.betaBetween));
  }
  if (settings.memory) {
    parts.push_back(fmt::format("memory: {}", *settings.memory));
  }
  return joined(parts, ", ");
}

void readPlannerSetting(std::string_view part, PlannerSettings& settings) {
  const auto [key, value] = splitAt(':', part);
  if (key == "bound") {
    settings.bound = numberOf<int64_t>(value, key);
  } else if (key == "direct") {
    check(value == "fallback" || value == "priced", "direct of the planner is '{}'; expected fallback or priced",
          value);
    settings.direct = value == "fallback" ? DirectChoice::Fallback : DirectChoice::Priced;
  } else if (key == "forbid") {
    settings.forbid.emplace_back(value);
  } else if (key == "between") {
    settings.betaBetween = numberOf<double>(value, key);
  } else if (key == "memory") {
    settings.memory = numberOf<int64_t>(value, key, "a whole number of bytes");
  } else if (key.starts_with("alpha ")) {
    settings.alpha[std::string(trimmed(key.substr(6)))] = numberOf<double>(value, key);
  } else if (key.starts_with("beta ")) {
    settings.beta[std::string(trimmed(key.substr(5)))] = numberOf<double>(value, key);
  } else {
    throwUserError(
        fmt::format("the planner has bound, direct, forbid, alpha AXIS, beta AXIS, between and memory, each with ': "
                    "VALUE'; got '{}'",
                    part));
  }
}

}  // namespace meshfuse
