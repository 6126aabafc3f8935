#include "host/verify_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "host/accesses.h"
#include "host/happens_before.h"
#include "host/program.h"

namespace meshfuse {

namespace {

std::string nameOf(const Access& a) { return a.val < 0 ? "its workspace" : fmt::format("T{}", a.val); }

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
