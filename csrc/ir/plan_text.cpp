#include "ir/plan_text.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/exact.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "ir/attribute_text.h"

namespace meshfuse {

namespace {

// -- printing -----------------------------------------------------------------------------------------------------------

std::string atomNames(const std::vector<int64_t>& atoms, const DeviceMesh& mesh) {
  return joined(atoms, ", ", [&](int64_t atom) { return mesh.axisName(atom); });
}

std::string stateText(const PlanState& state, const DeviceMesh& atoms) {
  const auto digitText = [&](const PlanDigit& d) {
    return std::to_string(d.size) + (d.atom == kLocal ? "" : ":" + atoms.axisName(d.atom));
  };
  const auto dimText = [&](int64_t k) {
    const std::string digits = state.dims[k].empty() ? "1" : joined(state.dims[k], " ", digitText);
    return state.partsOf(k).empty() ? digits : fmt::format("{} parts {}", digits, listText(state.partsOf(k)));
  };
  return fmt::format("[{}]{}", joined(indices(state.dims), ", ", dimText),
                     state.partial.empty() ? "" : fmt::format(" P({})", atomNames(state.partial, atoms)));
}

std::string meshText(const RefinedMesh& on, const std::function<int64_t(const DeviceMesh&)>& number) {
  std::string text = fmt::format("M{}", number(on.mesh));
  if (!(on.atoms == on.mesh)) {
    const std::string atoms = on.atoms.toString();
    text += " " + atoms.substr(0, atoms.find('}') + 1);
  }
  return text;
}

// -- parsing ------------------------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(std::string_view text, std::span<const DeviceMesh> meshes) : text_(text), rest_(text), meshes_(meshes) {}

  CommStep step() {
    const std::string_view verb = until('(');
    const std::string_view team = bracketed('(', ')');
    expect("on");
    CommStep step;
    step.on = mesh();
    step.before = state(step.on.atoms);
    expect("->");
    const bool isTransfer = verb == identifier(Collective::Transfer);
    if (isTransfer) {
      step.to = mesh();
    }
    step.after = state(isTransfer ? step.to->atoms : step.on.atoms);
    step.axes = atoms(team, step.on.atoms);
    if (verb == kPermute) {
      expect("sources");
      step.sources = mapped(splitAtCommas(bracketed('[', ']')), parseInteger);
    }
    require(trimmed(rest_).empty(), "nothing more");
    step.kind = kindOf(verb);
    require(verbOf(step) == verb && step.before.dims.size() == step.after.dims.size(),
            "two states that this kind of step can connect");
    return step;
  }

 private:
  void require(bool holds, std::string_view expected) const {
    check(holds, "[plan] '{}' is no step of a plan: expected {}{}; leave out plan= to plan anew", text_, expected,
          rest_.empty() ? "" : fmt::format(" before '{}'", rest_));
  }

  void skipBlanks() { rest_ = trimmed(rest_); }

  void expect(std::string_view word) {
    skipBlanks();
    require(rest_.starts_with(word), fmt::format("'{}'", word));
    rest_.remove_prefix(word.size());
  }

  std::string_view until(char end) {
    skipBlanks();
    const size_t at = rest_.find(end);
    require(at != std::string_view::npos, fmt::format("'{}'", end));
    const std::string_view word = trimmed(rest_.substr(0, at));
    rest_.remove_prefix(at);
    return word;
  }

  // The text between brackets, which may contain nested brackets.
  std::string_view bracketed(char open, char close) {
    skipBlanks();
    int64_t depth = 0;
    for (int64_t k = 0; k < std::ssize(rest_); k++) {
      depth += rest_[k] == open ? 1 : rest_[k] == close ? -1 : 0;
      if (depth == 0) {
        require(k > 0, fmt::format("'{}'", open));
        const std::string_view inside = rest_.substr(1, k - 1);
        rest_.remove_prefix(k + 1);
        return inside;
      }
    }
    require(false, fmt::format("'{}' and '{}'", open, close));
    return {};
  }

  Collective kindOf(std::string_view verb) const {
    if (verb == "slice" || verb == "to_partial") {
      return Collective::Local;
    }
    const std::optional<Collective> kind = verb == kPermute ? Collective::Transfer : parseCollective(verb);
    require(kind && traits(*kind).inPlans,
            fmt::format("slice, to_partial, {}, {}", kPermute, identifiersOf(&CollectiveTraits::inPlans)));
    return *kind;
  }

  RefinedMesh mesh() {
    expect("M");
    const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const int64_t number = parseInteger(rest_.substr(0, digits));
    rest_.remove_prefix(digits);
    require(number < std::ssize(meshes_), "a mesh that is defined above");
    const DeviceMesh& whole = meshes_[number];
    require(!whole.isSymbolic(), "a mesh of constant sizes");
    skipBlanks();
    if (!rest_.starts_with("{")) {
      return RefinedMesh::whole(whole);
    }
    std::vector<std::vector<int64_t>> cuts(whole.numAxes(), {1});
    int64_t axis = 0;
    int64_t left = whole.axisSize(0).constValue();  // size of the axis above the digits that were read
    std::vector<int64_t> sizes;                     // of its parts, the outermost first
    for (const std::string_view entry : splitAtCommas(bracketed('{', '}'))) {
      const int64_t size = parseInteger(splitAt(':', entry).second);
      require(axis < whole.numAxes() && size > 0 && left % size == 0, "parts of axes that fill them");
      sizes.insert(sizes.begin(), size);
      left /= size;
      if (left == 1) {
        for (const int64_t part : sizes) {
          cuts[axis].push_back(cuts[axis].back() * part);
        }
        sizes.clear();
        axis++;
        left = axis < whole.numAxes() ? whole.axisSize(axis).constValue() : 1;
      }
    }
    require(axis == whole.numAxes(), "parts of all axes");
    return RefinedMesh::cut(whole, cuts);
  }

  int64_t atom(std::string_view name, const DeviceMesh& mesh) const {
    int64_t k = 0;
    while (k < mesh.numAxes() && mesh.axisName(k) != name) {
      k++;
    }
    if (k == mesh.numAxes()) {
      require(false, fmt::format("axes of {}, not '{}',", mesh.toString(), name));
    }
    return k;
  }

  std::vector<int64_t> atoms(std::string_view names, const DeviceMesh& mesh) const {
    std::vector<int64_t> list = mapped(splitAtCommas(names), [&](std::string_view name) { return atom(name, mesh); });
    std::ranges::sort(list);
    require(std::ranges::adjacent_find(list) == list.end(), "each axis once");
    return list;
  }

  PlanState state(const DeviceMesh& mesh) {
    PlanState state;
    std::vector<std::vector<int64_t>> parts;
    for (std::string_view text : splitAtCommas(bracketed('[', ']'))) {
      parts.emplace_back();
      if (const size_t at = text.find("parts"); at != std::string_view::npos) {
        parts.back() = parseEach(trimmed(text.substr(at + 5)), parseInteger);
        const bool areSizes = std::ranges::all_of(parts.back(), [](int64_t n) { return n >= 0; });
        require(areSizes && sumExact(parts.back()) <= kMostTensorBytes && std::ssize(parts.back()) <= kMostDevices,
                "the sizes of the parts of a tensor's dim");
        text = trimmed(text.substr(0, at));
      }
      state.dims.push_back(dim(text, mesh));
    }
    for (int64_t k = 0; k < std::ssize(parts); k++) {
      state.setParts(k, parts[k]);
    }
    skipBlanks();
    if (rest_.starts_with("P(")) {
      rest_.remove_prefix(1);
      state.partial = atoms(bracketed('(', ')'), mesh);
    }
    std::vector<int64_t> used = usedAtoms(state);
    append(used, state.partial);
    std::ranges::sort(used);
    require(std::ranges::adjacent_find(used) == used.end(), "an axis to own one digit at most");
    return state;
  }

  // 4:x 2
  PlanDim dim(std::string_view text, const DeviceMesh& mesh) const {
    PlanDim digits;
    while (!text.empty()) {
      const size_t blank = std::min(text.find(' '), text.size());
      const std::string_view digit = text.substr(0, blank);
      const size_t colon = std::min(digit.find(':'), digit.size());
      const int64_t size = parseInteger(digit.substr(0, colon));
      const int64_t owner = colon == digit.size() ? kLocal : atom(digit.substr(colon + 1), mesh);
      require(size > 0 && (owner == kLocal || mesh.axisSize(owner).isConst(size)), "digits as large as their axes");
      digits.push_back({1, size, owner});
      text = trimmed(text.substr(blank));
    }
    require(!digits.empty(), "the digits of each dim");
    require(productExact(digits, &PlanDigit::size) <= kMostTensorBytes, "digits of a tensor's dim");
    for (int64_t k = std::ssize(digits) - 1; k > 0; k--) {
      digits[k - 1].stride = digits[k].stride * digits[k].size;
    }
    return normalForm(digits);
  }

  std::string_view text_;
  std::string_view rest_;
  std::span<const DeviceMesh> meshes_;
};

}  // namespace

std::string planText(std::span<const CommStep> plan, const std::function<int64_t(const DeviceMesh&)>& mesh) {
  std::vector<std::string> steps;
  for (const CommStep& step : plan) {
    const DeviceMesh& after = step.to ? step.to->atoms : step.on.atoms;
    steps.push_back(fmt::format("{}({}) on {} {} -> {}{}{}", verbOf(step), atomNames(step.axes, step.on.atoms),
                                meshText(step.on, mesh), stateText(step.before, step.on.atoms),
                                step.to ? meshText(*step.to, mesh) + " " : "", stateText(step.after, after),
                                step.sources.empty() ? "" : " sources " + listText(step.sources)));
  }
  return "[" + joined(steps, ", ") + "]";
}

std::vector<CommStep> parsePlan(std::string_view text, std::span<const DeviceMesh> meshes) {
  return parseEach(text, [&](std::string_view step) { return Reader(step, meshes).step(); });
}

std::string toString(const HaloStep& step) {
  const std::string verb = step.shared                      ? fmt::format("shared {}", *step.shared)
                           : step.kind == Collective::Local ? "slice"
                                                            : std::string(identifier(step.kind));
  return step.axes.empty() ? verb : fmt::format("{}({})", verb, joined(step.axes, ", "));
}

HaloStep parseHaloStep(std::string_view text) {
  const size_t open = std::min(text.find('('), text.size());
  const std::string_view verb = trimmed(text.substr(0, open));
  HaloStep step;
  if (verb.starts_with("shared ")) {
    step.kind = Collective::Transfer;
    step.shared = parseInteger(trimmed(verb.substr(verb.find(' '))));
    check(*step.shared >= 0 && *step.shared < kMostTextBytes,
          "[plan] '{}' has a number out of range: expected 0 to {}; leave out plan=", text, kMostTextBytes - 1);
  } else if (verb != "slice") {
    const std::optional<Collective> kind = parseCollective(verb);
    check(kind && traits(*kind).inHaloExchanges,
          "[plan] '{}' is no step of a halo exchange: expected slice, shared 0, {}; leave out plan=", text,
          identifiersOf(&CollectiveTraits::inHaloExchanges));
    step.kind = *kind;
  }
  if (open < text.size()) {
    check(text.back() == ')', "[plan] '{}' lacks its ')'; add it, or leave out plan=", text);
    const std::vector<std::string_view> axes = splitAtCommas(text.substr(open + 1, text.size() - open - 2));
    step.axes.assign(axes.begin(), axes.end());
  }
  return step;
}

}  // namespace meshfuse
