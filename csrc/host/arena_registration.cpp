#include "host/arena_registration.h"

#include <algorithm>

#include "base/hash.h"
#include "base/ranges.h"
#include "host/comm_path.h"

namespace meshfuse {

ArenaRegistration::ArenaRegistration(const HostProgram& program, const ProgramSizes& sizes, const CommPath& path,
                                     void* arena)
    : arena_(arena) {
  uint64_t layout = 0;
  std::vector<Team> others;  // with calls that must not use registered memory
  for (const int64_t i : indices(program.steps)) {
    const Step& s = program.steps[i];
    if (s.kind != HostStepKind::Communicate) {
      continue;
    }
    const auto placeOf = [&](int64_t tensor) {
      return program.tensors[tensor].place == Place::Arena ? sizes.tensors[tensor].offset + 1 : 0;
    };
    const int64_t in = placeOf(s.reads[0]);
    const int64_t out = placeOf(s.writes[0]);
    for (const int64_t part : {static_cast<int64_t>(s.comm.kind), in, out}) {
      layout = hashCombine(layout, static_cast<uint64_t>(part));
    }
    const Team& team = path.teamOf(s.comm);
    const auto has = [&](const std::vector<Team>& teams) {
      return std::ranges::find(teams, team.ranks, &Team::ranks) != teams.end();
    };
    if (!path.usesRegistered(s.comm)) {
      others.push_back(team);
    } else if ((in > 0 || out > 0) && !has(teams_)) {
      teams_.push_back(team);
    }
  }
  std::erase_if(teams_,
                [&](const Team& team) { return std::ranges::find(others, team.ranks, &Team::ranks) != others.end(); });
  layout_ = teams_.empty() ? 0 : 1 + static_cast<int64_t>(layout >> 3);
}

int64_t ArenaRegistration::proposal() const { return 2 * layout_ + (isRegistered_ ? 1 : 0); }

bool ArenaRegistration::agree(int64_t least, int64_t most, CommPath& path) {
  if (least != most) {
    giveUp(path);
  }
  return layout_ != 0 && !isRegistered_;
}

bool ArenaRegistration::enroll(CommPath& path) {
  isRegistered_ = true;
  return path.enroll(arena_, teams_);
}

void ArenaRegistration::giveUp(CommPath& path) {
  if (isRegistered_) {
    path.withdraw(arena_);
  }
  isRegistered_ = false;
  layout_ = 0;
}

}  // namespace meshfuse
