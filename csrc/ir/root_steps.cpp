// The way from a root domain to the logical one, read back.
#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/attribute_text.h"
#include "ir/root_text.h"

namespace meshfuse {

namespace {

int64_t parsePosition(std::string_view text, int64_t size) {
  const int64_t p = parseInteger(text);
  check(p >= 0 && p < size, "got position {} in a list of {}, expected one below {}", p, size, size);
  return p;
}

void reorderDims(const std::vector<std::string_view>& order, std::vector<IterDomain*>& dims) {
  check(order.size() == dims.size(), "reorder names {} dims, expected each of the {} once", order.size(), dims.size());
  std::vector<IterDomain*> reordered =
      mapped(order, [&](std::string_view part) { return dims[parsePosition(part, dims.size())]; });
  check(std::ranges::is_permutation(reordered, dims), "reorder names a dim twice, expected each once");
  dims = std::move(reordered);
}

// The dim at a position becomes two.
void divide(std::vector<IterDomain*>& dims, size_t at, const std::pair<IterDomain*, IterDomain*>& parts) {
  dims[at] = parts.first;
  dims.insert(dims.begin() + at + 1, parts.second);
}

}  // namespace

std::vector<IterDomain*> applyRootSteps(std::string_view steps, std::vector<IterDomain*> dims,
                                        const std::vector<Dim>& logical, const RootReader& reader) {
  Fusion& fusion = *reader.fusion;
  for (std::string_view step : splitAtCommas(steps)) {
    reader.standAt(step);
    const size_t open = step.find_first_of("([");
    check(open != std::string_view::npos && (step.back() == ')' || step.back() == ']'),
          "expected a step such as merge(0), got '{}'", step);
    const std::string_view name = step.substr(0, open);
    const std::vector<std::string_view> arguments = splitAtCommas(step.substr(open + 1, step.size() - open - 2));
    if (name == "reorder") {
      reorderDims(arguments, dims);
      continue;
    }
    const bool isSplit = name == "inner_split" || name == "outer_split";
    const size_t wanted = name == "resize" ? 3 : isSplit || name == "partition" ? 2 : 1;
    check(arguments.size() == wanted, "'{}' has {} arguments; expected {}", step, arguments.size(), wanted);
    if (name == "new") {
      const size_t at = parsePosition(arguments[0], dims.size() + 1);
      check(at < logical.size(), "got new({}), but the logical domain has {} dims; give it the new dim", at,
            logical.size());
      dims.insert(dims.begin() + at, fusion.idNew(logical[at]));
      continue;
    }
    const size_t at = parsePosition(arguments[0], dims.size());
    if (isSplit) {
      divide(dims, at, fusion.idSplit(dims[at], reader.expression(arguments[1]), name == "inner_split"));
    } else if (name == "partition") {
      divide(dims, at, fusion.idPartition(dims[at], parseEach(arguments[1], reader.expression)));
    } else if (name == "resize") {
      dims[at] = fusion.idResize(dims[at], reader.expression(arguments[1]), reader.expression(arguments[2]));
    } else if (name == "drop") {
      dims.erase(dims.begin() + at);
    } else {
      check(name == "merge",
            "there is no step '{}'; there are inner_split, outer_split, partition, merge, resize, drop, new, reorder",
            name);
      check(at + 1 < dims.size(), "merge({}) needs a dim after it, but dim {} is the last; merge an earlier one", at,
            at);
      dims[at] = fusion.idMerge(dims[at], dims[at + 1]);
      dims.erase(dims.begin() + at + 1);
    }
  }
  return dims;
}

}  // namespace meshfuse
