#include "host/accesses.h"

#include <algorithm>
#include <optional>

#include "base/ranges.h"

namespace meshfuse {

namespace {

// Without a step.
Access accessTo(const HostProgram& program, const ProgramSizes& sizes, int64_t tensor) {
  const TensorPlan& t = program.tensors[tensor];
  if (t.place != Place::Arena) {
    return {.memory = {t.place, t.index}, .end = 1, .val = t.val};
  }
  const TensorSizes& n = sizes.tensors[tensor];
  return {.memory = {t.place, 0}, .begin = n.offset, .end = n.offset + n.bytes, .val = t.val};
}

}  // namespace

std::vector<Access> accesses(const HostProgram& program, const ProgramSizes& sizes) {
  std::vector<Access> result;
  for (int64_t i = 0; i < std::ssize(program.steps); i++) {
    const Step& s = program.steps[i];
    const auto add = [&](int64_t tensor, bool writes) {
      Access& a = result.emplace_back(accessTo(program, sizes, tensor));
      a.step = i;
      a.writes = writes;
    };
    for (const int64_t t : s.reads) {
      add(t, false);
    }
    for (const int64_t t : s.writes) {
      add(t, true);
    }
    for (const int64_t k : indices(s.workspaces)) {
      if (!s.workspaces[k].zeroed) {
        const WorkspaceSizes& w = sizes.steps[i].workspaces[k];
        result.push_back(
            {.memory = {Place::Arena, 0}, .begin = w.offset, .end = w.offset + w.bytes, .step = i, .writes = true});
      }
    }
  }
  std::ranges::sort(result, {}, [](const Access& a) { return std::tuple(a.memory, a.begin, a.step); });
  return result;
}

bool isIntact(const HostProgram& program, const ProgramSizes& sizes, int64_t tensor, int64_t end) {
  const Access own = accessTo(program, sizes, tensor);
  std::optional<int64_t> computed;  // by the step before this one
  if (program.tensors[tensor].place == Place::Input) {
    computed = 0;
  }
  for (int64_t i = 0; i < end; i++) {
    if (contains(program.steps[i].writes, program.storageOf(tensor))) {
      computed = i + 1;
    }
  }
  return computed && std::ranges::none_of(accesses(program, sizes), [&](const Access& a) {
           return a.writes && a.step >= *computed && a.step < end && a.memory == own.memory && a.begin < own.end &&
                  own.begin < a.end;
         });
}

}  // namespace meshfuse
