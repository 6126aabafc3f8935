#include "host/verify_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "host/happens_before.h"
#include "host/program.h"

namespace meshfuse {

namespace {

struct Access {
  std::tuple<Place, int64_t> memory;  // the arena, or an input or output with its number
  int64_t begin = 0;                  // bytes
  int64_t end = 0;
  int64_t step = 0;
  bool writes = false;
  int64_t val = -1;  // the tensor's; -1 for a workspace
};

std::string nameOf(const Access& a) { return a.val < 0 ? "its workspace" : fmt::format("T{}", a.val); }

std::vector<Access> accesses(const HostProgram& program, const ProgramSizes& sizes) {
  std::vector<Access> result;
  for (int64_t i = 0; i < std::ssize(program.steps); i++) {
    const Step& s = program.steps[i];
    const auto add = [&](int64_t tensor, bool writes) {
      const TensorPlan& t = program.tensors[tensor];
      const bool inArena = t.place == Place::Arena;
      result.push_back({.memory = {t.place, inArena ? 0 : t.index},
                        .begin = inArena ? sizes.tensors[tensor].offset : 0,
                        .end = inArena ? sizes.tensors[tensor].offset + sizes.tensors[tensor].bytes : 1,
                        .step = i,
                        .writes = writes,
                        .val = t.val});
    };
    for (const int64_t t : s.reads) {
      add(t, false);
    }
    for (const int64_t t : s.writes) {
      add(t, true);
    }
    for (const WorkspaceSizes& w : sizes.steps[i].workspaces) {
      result.push_back(
          {.memory = {Place::Arena, 0}, .begin = w.offset, .end = w.offset + w.bytes, .step = i, .writes = true});
    }
  }
  std::ranges::sort(result, {}, [](const Access& a) { return std::tuple(a.memory, a.begin, a.step); });
  return result;
}

}  // namespace

std::optional<std::string> unorderedAccess(const HostProgram& program, const ProgramSizes& sizes) {
  HappensBefore before;
  for (int64_t i = 0; i < std::ssize(program.steps); i++) {
    for (const int64_t wait : program.steps[i].order.waits) {
      if (wait < 0 || wait >= i) {
        return fmt::format("{} waits for step {}, which is not before it", program.steps[i].name, wait);
      }
    }
    before.append(program.steps[i].order);
  }
  const std::vector<Access> all = accesses(program, sizes);
  for (auto a = all.begin(); a != all.end(); ++a) {
    for (auto b = std::next(a); b != all.end() && b->memory == a->memory && b->begin < a->end; ++b) {
      const bool conflict = (a->writes || b->writes) && a->step != b->step && b->begin < b->end;
      if (conflict && !before(std::min(a->step, b->step), std::max(a->step, b->step))) {
        const auto& [first, then] = a->step < b->step ? std::tie(*a, *b) : std::tie(*b, *a);
        return fmt::format("{} {} {} and {} {} {} in the same memory, in no order", program.steps[first.step].name,
                           first.writes ? "writes" : "reads", nameOf(first), program.steps[then.step].name,
                           then.writes ? "writes" : "reads", nameOf(then));
      }
    }
  }
  return std::nullopt;
}

void verifyHostProgram(const HostProgram& program, const ProgramSizes& sizes) {
  const std::optional<std::string> found = unorderedAccess(program, sizes);
  invariant(!found, "[host program] {}", found.value_or(""));
}

}  // namespace meshfuse
