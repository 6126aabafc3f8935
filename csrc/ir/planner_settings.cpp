#include "ir/planner_settings.h"

#include <fmt/core.h>

#include <charconv>

#include "base/error.h"
#include "ir/attribute_text.h"

namespace meshfuse {

namespace {

template <class Number>
Number numberOf(std::string_view text, std::string_view what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && !text.empty(),
        "{} of the planner is '{}'; expected a number", what, text);
  return value;
}

}  // namespace

double costAlong(const std::string& axis, const std::map<std::string, double>& costs) {
  const auto cost = costs.find(axis);
  return cost == costs.end() ? 1 : cost->second;
}

std::string toString(const PlannerSettings& settings) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (settings.bound) {
    add(fmt::format("bound: {}", *settings.bound));
  }
  if (settings.direct == DirectChoice::Fallback) {
    add("direct: fallback");
  }
  for (const std::string& move : settings.forbid) {
    add("forbid: " + move);
  }
  for (const auto& [axis, cost] : settings.alpha) {
    add(fmt::format("alpha {}: {}", axis, cost));
  }
  for (const auto& [axis, cost] : settings.beta) {
    add(fmt::format("beta {}: {}", axis, cost));
  }
  if (settings.betaBetween != PlannerSettings().betaBetween) {
    add(fmt::format("between: {}", settings.betaBetween));
  }
  return text;
}

void readPlannerSetting(std::string_view part, PlannerSettings& settings) {
  const size_t colon = std::min(part.find(':'), part.size());
  const std::string_view key = trimmed(part.substr(0, colon));
  const std::string_view value = trimmed(part.substr(std::min(colon + 1, part.size())));
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
  } else if (key.starts_with("alpha ")) {
    settings.alpha[std::string(trimmed(key.substr(6)))] = numberOf<double>(value, key);
  } else if (key.starts_with("beta ")) {
    settings.beta[std::string(trimmed(key.substr(5)))] = numberOf<double>(value, key);
  } else {
    throwUserError(fmt::format(
        "the planner has bound, direct, forbid, alpha AXIS, beta AXIS and between, each with ': VALUE'; got '{}'",
        part));
  }
}

}  // namespace meshfuse
