#include "ir/attribute_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "ir/op_rule.h"
#include "ir/plan_text.h"
#include "ir/tensor_view.h"

namespace meshfuse {

namespace {

constexpr std::array<std::string_view, 2> kRandomKinds = {"uniform", "normal"};

std::string partsText(const std::vector<Part>& parts) {
  return listText(parts, [](const Part& part) { return toString(part); });
}

std::string commText(const CommAttributes& c, const std::function<std::string(const IntExpr&)>& written) {
  std::string text = fmt::format("kind={}, mesh=M{}, axes={}", identifier(c.kind), c.mesh, listText(c.axes));
  if (reduces(c.kind)) {
    text += fmt::format(", op={}", name(c.reduce));
  }
  if (!c.sources.empty()) {
    text += fmt::format(", sources=[{}]", fmt::join(c.sources, ", "));
  }
  if (c.kind == Collective::Broadcast) {
    text += ", root=" + written(c.root);
  }
  if (!c.sends.empty()) {
    text += ", sends=" + partsText(c.sends);
  }
  if (!c.receives.empty()) {
    text += ", receives=" + partsText(c.receives);
  }
  if (c.kind == Collective::Transfer && c.sources.empty()) {
    text += fmt::format(", to=[{}], from=[{}]", fmt::join(c.to, ", "), fmt::join(c.from, ", "));
  }
  if (c.number != 0) {
    text += fmt::format(", number={}", c.number);
  }
  return text;
}

}  // namespace

ReduceOp parseReduceOp(std::string_view text) {
  const auto* found = std::ranges::find(kReduceOpNames, text);
  check(found != std::end(kReduceOpNames), "no reduction is named '{}'; there are {}", text,
        fmt::join(kReduceOpNames, ", "));
  return static_cast<ReduceOp>(found - kReduceOpNames);
}

namespace {

RandomKind parseRandomKind(std::string_view text) {
  const auto found = std::ranges::find(kRandomKinds, text);
  check(found != kRandomKinds.end(), "unknown name '{}'; there are {}", text, fmt::join(kRandomKinds, ", "));
  return static_cast<RandomKind>(found - kRandomKinds.begin());
}

std::string_view keyOf(Attribute attribute) {
  constexpr std::string_view kKeys[] = {"point",  "op",    "kind",  "dim",  "ordinal", "flags", "order",
                                        "starts", "stops", "steps", "comm", "plan",    "plan",  "pack"};
  return kKeys[static_cast<size_t>(attribute)];
}

// Text of one attribute's value; empty: not printed.
std::string valueText(Attribute attribute, const Expr& expr, const std::function<std::string(const IntExpr&)>& text,
                      const std::function<int(const DeviceMesh&)>& mesh) {
  const ExprAttributes& a = expr.attributes();
  auto list = [&](const std::vector<IntExpr>& values) { return values.empty() ? "" : listText(values, text); };
  switch (attribute) {
    case Attribute::Point:
    case Attribute::Comm:
      return "";
    case Attribute::Reduce:
      return std::string(name(a.reduce));
    case Attribute::Random:
      return std::string(kRandomKinds[static_cast<size_t>(a.random)]);
    case Attribute::Dim:
      return fmt::format("{}", a.dim);
    case Attribute::Ordinal:
      return fmt::format("{}", a.ordinal);
    case Attribute::Flags:
      return a.flags.empty() ? "" : flagsText(a.flags);
    case Attribute::Order:
      return a.order.empty() ? "" : listText(a.order);
    case Attribute::Starts:
      return list(a.starts);
    case Attribute::Stops:
      return list(a.stops);
    case Attribute::Steps:
      return list(a.steps);
    case Attribute::Plan:
      return a.plan ? planText(*a.plan, mesh) : "";
    case Attribute::HaloSteps:
      return a.haloSteps.empty() ? "" : listText(a.haloSteps, [](const HaloStep& step) { return toString(step); });
    case Attribute::Pack:
      return a.pack == 0 ? "" : fmt::format("{}", a.pack);
  }
  return "";
}

void parseComm(std::string_view key, std::string_view value, const std::function<IntExpr(std::string_view)>& read,
               CommAttributes& c) {
  if (key == "kind") {
    const std::optional<Collective> kind = parseCollective(value);
    check(kind && *kind != Collective::Local && *kind <= Collective::Broadcast,
          "unknown collective '{}'; there are transfer, all_to_all, all_gather, reduce_scatter, all_reduce, broadcast",
          value);
    c.kind = *kind;
  } else if (key == "mesh") {
    check(value.starts_with("M"), "expected a mesh such as M0, got '{}'", value);
    c.mesh = static_cast<int>(parseInteger(value.substr(1)));
  } else if (key == "axes") {
    c.axes = parseIntegers(value);
  } else if (key == "op") {
    c.reduce = parseReduceOp(value);
  } else if (key == "sources" || key == "to" || key == "from") {
    std::vector<int64_t>& list = key == "sources" ? c.sources : key == "to" ? c.to : c.from;
    list = parseEach(value, parseInteger);
  } else if (key == "number") {
    c.number = parseInteger(value);
  } else if (key == "root") {
    c.root = read(value);
  } else if (key == "sends" || key == "receives") {
    (key == "sends" ? c.sends : c.receives) = parseEach(value, parsePart);
  } else {
    throwUserError(fmt::format(
        "communicate has no attribute '{}'; there are kind, mesh, axes, op, sources, root, sends, receives, to, from, "
        "number",
        key));
  }
}

std::string keysOf(ExprKind kind) {
  std::vector<std::string_view> keys;
  std::ranges::transform(ruleOf(kind).attributes, std::back_inserter(keys), keyOf);
  return keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace

std::string flagsText(const std::vector<bool>& flags) {
  return listText(flags, [](bool flag) { return std::string(flag ? "t" : "f"); });
}

std::string listText(const std::vector<int>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

std::string attributesText(const Expr& expr, const std::function<std::string(const IntExpr&)>& text,
                           const std::function<int(const DeviceMesh&)>& mesh) {
  if (expr.kind() == ExprKind::Communicate) {
    return commText(expr.attributes().comm, text);
  }
  bool combines = expr.kind() != ExprKind::Redistribute || expr.tensorOutput()->hasReduction();
  std::vector<std::string> parts;
  for (Attribute a : ruleOf(expr).attributes) {
    if (!combines && (a == Attribute::Reduce || a == Attribute::Dim)) {
      continue;
    }
    std::string value = valueText(a, expr, text, mesh);
    if (!value.empty()) {
      parts.push_back(fmt::format("{}={}", keyOf(a), value));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void parseAttribute(ExprKind kind, std::string_view key, std::string_view value,
                    const std::function<IntExpr(std::string_view)>& read, std::span<const DeviceMesh> meshes,
                    ExprAttributes& attributes) {
  if (kind == ExprKind::Communicate) {
    parseComm(key, value, read, attributes.comm);
    return;
  }
  for (Attribute a : ruleOf(kind).attributes) {
    if (keyOf(a) != key) {
      continue;
    }
    switch (a) {
      case Attribute::Point:
      case Attribute::Comm:
        break;
      case Attribute::Reduce:
        attributes.reduce = parseReduceOp(value);
        return;
      case Attribute::Random:
        attributes.random = parseRandomKind(value);
        return;
      case Attribute::Dim:
        attributes.dim = static_cast<int>(parseInteger(value));
        return;
      case Attribute::Ordinal:
        attributes.ordinal = static_cast<int>(parseInteger(value));
        return;
      case Attribute::Flags:
        attributes.flags = parseFlags(value);
        return;
      case Attribute::Order:
        attributes.order = parseIntegers(value);
        return;
      case Attribute::Starts:
        attributes.starts = parseEach(value, read);
        return;
      case Attribute::Stops:
        attributes.stops = parseEach(value, read);
        return;
      case Attribute::Steps:
        attributes.steps = parseEach(value, read);
        return;
      case Attribute::Plan:
        attributes.plan = parsePlan(value, meshes);
        return;
      case Attribute::HaloSteps:
        attributes.haloSteps = parseEach(value, parseHaloStep);
        return;
      case Attribute::Pack:
        attributes.pack = static_cast<int>(parseInteger(value));
        return;
    }
  }
  throwUserError(fmt::format("{} has no attribute '{}'; there are {}", ruleOf(kind).name, key, keysOf(kind)));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

std::vector<std::string_view> splitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t start = 0;
  for (size_t k = 0; k <= text.size(); k++) {
    if (k == text.size() || (text[k] == ',' && depth == 0)) {
      parts.push_back(trimmed(text.substr(start, k - start)));
      start = k + 1;
    } else if (text[k] == '(' || text[k] == '[' || text[k] == '{') {
      depth++;
    } else if (text[k] == ')' || text[k] == ']' || text[k] == '}') {
      depth--;
    }
  }
  if (parts.size() == 1 && parts[0].empty()) {
    parts.clear();
  }
  return parts;
}

std::vector<std::string_view> parseList(std::string_view text) {
  check(text.size() >= 2 && text.front() == '[' && text.back() == ']', "expected a list in brackets, got '{}'", text);
  return splitAtCommas(text.substr(1, text.size() - 2));
}

int64_t parseInteger(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "expected an integer, got '{}'", text);
  return value;
}

std::vector<int> parseIntegers(std::string_view list) {
  return parseEach(list, [](std::string_view part) {
    int64_t value = parseInteger(part);
    check(value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max(), "{} is too large here",
          value);
    return static_cast<int>(value);
  });
}

std::vector<bool> parseFlags(std::string_view list) {
  return parseEach(list, [](std::string_view part) {
    check(part == "t" || part == "f", "expected t or f, got '{}'", part);
    return part == "t";
  });
}

}  // namespace meshfuse
