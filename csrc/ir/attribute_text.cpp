#include "ir/attribute_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "ir/op_rule.h"
#include "ir/plan_text.h"
#include "ir/tensor_view.h"

namespace meshfuse {

namespace {

constexpr std::string_view kRandomKinds[] = {"uniform", "normal"};

RandomKind parseRandomKind(std::string_view text) {
  const auto* found = std::ranges::find(kRandomKinds, text);
  check(found != std::end(kRandomKinds), "unknown name '{}'; there are {}", text, fmt::join(kRandomKinds, ", "));
  return static_cast<RandomKind>(found - kRandomKinds);
}

Collective parseKind(std::string_view text) {
  const std::optional<Collective> kind = parseCollective(text);
  const auto isInPrograms = [](const CollectiveTraits& t) { return t.inPlans || t.inHaloExchanges; };
  check(kind && isInPrograms(traits(*kind)), "'{}' is no collective of a program; expected {}", text,
        identifiersOf(isInPrograms));
  return *kind;
}

int64_t parseMesh(std::string_view text) {
  check(text.starts_with("M"), "expected a mesh such as M0, got '{}'", text);
  return parseInteger(text.substr(1));
}

struct Write {
  const std::function<std::string(const IntExpr&)>& text;
  const std::function<int64_t(const DeviceMesh&)>& mesh;
};

struct Read {
  const std::function<IntExpr(std::string_view)>& expression;
  std::span<const DeviceMesh> meshes;
};

// How the text form names, writes and reads a part of `Owner`. An empty text is not printed.
template <class Owner>
struct Field {
  std::string_view key;
  std::string (*written)(const Owner&, const Write&);
  void (*read)(Owner&, std::string_view, const Read&);
};

using A = ExprAttributes;
using C = CommAttributes;
using Text = std::string_view;

template <class List, class... Written>
std::string unlessEmpty(const List& list, const Written&... written) {
  return list.empty() ? "" : listText(list, written...);
}

template <std::vector<IntExpr> A::*kList>
constexpr Field<A> expressions(Text key) {
  return {key, [](const A& a, const Write& write) { return unlessEmpty(a.*kList, write.text); },
          [](A& a, Text text, const Read& read) { a.*kList = parseEach(text, read.expression); }};
}

template <std::vector<Part> C::*kList>
constexpr Field<C> blocks(Text key) {
  return {key,
          [](const C& c, const Write&) { return unlessEmpty(c.*kList, [](const Part& p) { return toString(p); }); },
          [](C& c, Text text, const Read&) { c.*kList = parseEach(text, parsePart); }};
}

// By Attribute.
constexpr Field<A> kFields[] = {
    {"op", [](const A& a, const Write&) { return std::string(name(a.reduce)); },
     [](A& a, Text text, const Read&) { a.reduce = parseReduceOp(text); }},
    {"kind", [](const A& a, const Write&) { return std::string(kRandomKinds[static_cast<size_t>(a.random)]); },
     [](A& a, Text text, const Read&) { a.random = parseRandomKind(text); }},
    {"dim", [](const A& a, const Write&) { return std::to_string(a.dim); },
     [](A& a, Text text, const Read&) { a.dim = parseInteger(text); }},
    {"ordinal", [](const A& a, const Write&) { return std::to_string(a.ordinal); },
     [](A& a, Text text, const Read&) { a.ordinal = parseInteger(text); }},
    {"flags", [](const A& a, const Write&) { return a.flags.empty() ? "" : flagsText(a.flags); },
     [](A& a, Text text, const Read&) { a.flags = parseFlags(text); }},
    {"order", [](const A& a, const Write&) { return unlessEmpty(a.order); },
     [](A& a, Text text, const Read&) { a.order = parseIntegers(text); }},
    expressions<&A::starts>("starts"),
    expressions<&A::stops>("stops"),
    expressions<&A::steps>("steps"),
    {"plan", [](const A& a, const Write& write) { return a.plan ? planText(*a.plan, write.mesh) : ""; },
     [](A& a, Text text, const Read& read) { a.plan = parsePlan(text, read.meshes); }},
    {"plan",
     [](const A& a, const Write&) {
       return a.haloSteps ? listText(*a.haloSteps, [](const HaloStep& s) { return toString(s); }) : "";
     },
     [](A& a, Text text, const Read&) { a.haloSteps = parseEach(text, parseHaloStep); }},
    {"pack", [](const A& a, const Write&) { return a.pack == 0 ? "" : std::to_string(a.pack); },
     [](A& a, Text text, const Read&) { a.pack = parseInteger(text); }},
};
static_assert(std::size(kFields) == static_cast<size_t>(Attribute::Pack) + 1);

bool sendsToRanks(const C& c) { return c.kind == Collective::Transfer && c.sources.empty(); }

constexpr Field<C> kCommFields[] = {
    {"kind", [](const C& c, const Write&) { return std::string(identifier(c.kind)); },
     [](C& c, Text text, const Read&) { c.kind = parseKind(text); }},
    {"mesh", [](const C& c, const Write&) { return fmt::format("M{}", c.mesh); },
     [](C& c, Text text, const Read&) { c.mesh = parseMesh(text); }},
    {"axes", [](const C& c, const Write&) { return listText(c.axes); },
     [](C& c, Text text, const Read&) { c.axes = parseIntegers(text); }},
    {"op", [](const C& c, const Write&) { return std::string(reduces(c.kind) ? name(c.reduce) : ""); },
     [](C& c, Text text, const Read&) { c.reduce = parseReduceOp(text); }},
    {"sources", [](const C& c, const Write&) { return unlessEmpty(c.sources); },
     [](C& c, Text text, const Read&) { c.sources = parseEach(text, parseInteger); }},
    {"root", [](const C& c, const Write& write) { return c.kind == Collective::Broadcast ? write.text(c.root) : ""; },
     [](C& c, Text text, const Read& read) { c.root = read.expression(text); }},
    blocks<&C::sends>("sends"),
    blocks<&C::receives>("receives"),
    {"to", [](const C& c, const Write&) { return sendsToRanks(c) ? listText(c.to) : ""; },
     [](C& c, Text text, const Read&) { c.to = parseEach(text, parseInteger); }},
    {"from", [](const C& c, const Write&) { return sendsToRanks(c) ? listText(c.from) : ""; },
     [](C& c, Text text, const Read&) { c.from = parseEach(text, parseInteger); }},
    {"number", [](const C& c, const Write&) { return c.number == 0 ? "" : std::to_string(c.number); },
     [](C& c, Text text, const Read&) { c.number = parseInteger(text); }},
};

const Field<A>& fieldOf(Attribute attribute) { return kFields[static_cast<size_t>(attribute)]; }

template <class Owner, class Fields>
std::string fieldsText(const Owner& owner, const Fields& fields, const Write& write) {
  std::vector<std::string> parts;
  for (const Field<Owner>& field : fields) {
    if (const std::string text = field.written(owner, write); !text.empty()) {
      parts.push_back(fmt::format("{}={}", field.key, text));
    }
  }
  return joined(parts, ", ");
}

template <class Owner, class Fields>
void readField(Owner& owner, const Fields& fields, ExprKind kind, std::string_view key, std::string_view value,
               const Read& read) {
  const auto field = std::ranges::find(fields, key, &Field<Owner>::key);
  if (field == std::ranges::end(fields)) {
    const std::string keys = joined(fields, ", ", &Field<Owner>::key);
    throwUserError(
        fmt::format("{} has no attribute '{}'; there are {}", ruleOf(kind).name, key, keys.empty() ? "none" : keys));
  }
  field->read(owner, value, read);
}

}  // namespace

ReduceOp parseReduceOp(std::string_view text) {
  const auto* found = std::ranges::find(kReduceOpNames, text);
  check(found != std::end(kReduceOpNames), "no reduction is named '{}'; there are {}", text,
        fmt::join(kReduceOpNames, ", "));
  return static_cast<ReduceOp>(found - kReduceOpNames);
}

std::string flagsText(const std::vector<bool>& flags) {
  return listText(flags, [](bool flag) { return flag ? "t" : "f"; });
}

std::string attributesText(const Expr& expr, const std::function<std::string(const IntExpr&)>& text,
                           const std::function<int64_t(const DeviceMesh&)>& mesh) {
  if (expr.kind() == ExprKind::Communicate) {
    return fieldsText(expr.attributes().comm, kCommFields, {text, mesh});
  }
  const bool combines = expr.kind() != ExprKind::Redistribute || expr.tensorOutput()->hasReduction();
  const std::vector<Attribute> printed = filtered(ruleOf(expr).attributes, [&](Attribute a) {
    return combines || (a != Attribute::Reduce && a != Attribute::Dim);
  });
  return fieldsText(expr.attributes(), mapped(printed, fieldOf), {text, mesh});
}

void parseAttribute(ExprKind kind, std::string_view key, std::string_view value,
                    const std::function<IntExpr(std::string_view)>& read, std::span<const DeviceMesh> meshes,
                    ExprAttributes& attributes) {
  if (kind == ExprKind::Communicate) {
    readField(attributes.comm, kCommFields, kind, key, value, {read, meshes});
  } else {
    readField(attributes, mapped(ruleOf(kind).attributes, fieldOf), kind, key, value, {read, meshes});
  }
}

int64_t nesting(char c) {
  return std::string_view("([{").find(c) != std::string_view::npos   ? 1
         : std::string_view(")]}").find(c) != std::string_view::npos ? -1
                                                                     : 0;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

std::vector<std::string_view> splitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  int64_t depth = 0;
  size_t start = 0;
  for (int64_t k = 0; k <= std::ssize(text); k++) {
    if (k == std::ssize(text) || (text[k] == ',' && depth == 0)) {
      parts.push_back(trimmed(text.substr(start, k - start)));
      start = k + 1;
    } else {
      depth += nesting(text[k]);
    }
  }
  if (parts.size() == 1 && parts[0].empty()) {
    parts.clear();
  }
  return parts;
}

std::pair<std::string_view, std::string_view> splitAt(char separator, std::string_view text) {
  const size_t at = std::min(text.find(separator), text.size());
  return {trimmed(text.substr(0, at)), trimmed(text.substr(std::min(at + 1, text.size())))};
}

std::vector<std::string_view> parseList(std::string_view text) {
  check(text.size() >= 2 && text.front() == '[' && text.back() == ']', "expected a list in brackets, got '{}'", text);
  return splitAtCommas(text.substr(1, text.size() - 2));
}

int64_t parseInteger(std::string_view text) {
  const std::optional<int64_t> value = numberIn<int64_t>(text);
  check(value.has_value(), "expected an integer, got '{}'", text);
  return *value;
}

std::vector<int64_t> parseIntegers(std::string_view list) {
  return parseEach(list, [](std::string_view part) {
    const int64_t value = parseInteger(part);
    check(std::in_range<int32_t>(value), "{} does not fit here; expected {} to {}", value, INT32_MIN, INT32_MAX);
    return value;
  });
}

std::vector<bool> parseFlags(std::string_view list) {
  return parseEach(list, [](std::string_view part) {
    check(part == "t" || part == "f", "expected t or f, got '{}'", part);
    return part == "t";
  });
}

}  // namespace meshfuse
