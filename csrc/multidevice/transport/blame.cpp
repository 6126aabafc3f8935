// Compares the records of all ranks and finds the first call that differs between them.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/flight_recorder.h"
#include "multidevice/transport/lanes.h"

namespace meshfuse {

namespace {

using Entry = FlightRecord::Entry;
using Records = std::map<int64_t, FlightRecord>;  // by rank

// One call of a team, as its members made it.
struct TeamCall {
  uint64_t sequence = 0;
  uint64_t mask = 0;
  std::map<int64_t, const Entry*> members;  // by rank; null: the rank's record lacks this call
  int64_t begin = 0;                        // of the first member to come
};

std::string list(const std::vector<int64_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// The calls of one rank for one team, by their sequence.
std::map<uint64_t, const Entry*> callsFor(const FlightRecord& record, uint64_t team) {
  std::map<uint64_t, const Entry*> calls;
  for (const Entry& e : record.calls) {
    if (e.event.call.teamHash == team && e.event.teamSequence != 0) {
      calls[e.event.teamSequence] = &e;
    }
  }
  return calls;
}

bool areAlike(const TeamCall& call) {
  const Entry* first = call.members.begin()->second;
  return std::ranges::all_of(call.members | std::views::values, [&](const Entry* e) {
    return first != nullptr && e != nullptr && e->event.call == first->event.call;
  });
}

// The first call of a team that its members did not all make alike.
std::optional<TeamCall> firstDivergence(const Records& records, uint64_t team, uint64_t mask) {
  std::map<int64_t, std::map<uint64_t, const Entry*>> calls;
  uint64_t from = 1;  // a record no longer has older calls
  uint64_t to = 0;
  for (const auto& [r, record] : records) {
    const std::map<uint64_t, const Entry*> own = callsFor(record, team);
    if (!own.empty()) {
      const bool remembersAll = record.calls.front().event.sequence == 1;
      from = remembersAll ? from : std::max(from, own.begin()->first);
      to = std::max(to, own.rbegin()->first);
    }
    if (!own.empty() || (r < 64 && (mask >> r & 1) != 0)) {
      calls[r] = own;
    }
  }
  for (uint64_t s = from; s <= to; ++s) {
    TeamCall call{.sequence = s, .mask = mask, .members = {}, .begin = INT64_MAX};
    for (const auto& [r, own] : calls) {
      const auto it = own.find(s);
      call.members[r] = it == own.end() ? nullptr : it->second;
      call.begin = it == own.end() ? call.begin : std::min(call.begin, it->second->begin);
    }
    if (!areAlike(call)) {
      return call;
    }
  }
  return std::nullopt;
}

std::string describeEntry(const Entry& e, int64_t origin) {
  const std::string step =
      e.event.step < 0 ? "" : fmt::format(" at step {} ({})", e.event.step, std::string_view(e.event.what));
  const double milliseconds = static_cast<double>(e.begin - origin) * 1e-6;
  const double duration = static_cast<double>(e.end - e.begin) * 1e-6;
  const std::string end = e.end == 0 ? "not ended" : e.timed ? fmt::format("ended after {:.3f} ms", duration) : "ended";
  const std::string program = e.event.call.program == 0 ? "" : fmt::format(", program {:08x}", e.event.call.program);
  const std::string way =
      e.event.way == Algorithm::Default ? "" : fmt::format(" by the algorithm '{}'", name(e.event.way));
  return fmt::format("{}{}{}{}, begun {} {:.3f} ms, {}", describe(e.event.call), way, step, program,
                     e.timed ? "at" : "after", milliseconds, end);
}

std::string whereItWas(const FlightRecord& record, int64_t origin) {
  if (record.calls.empty()) {
    return "made no call";
  }
  const Entry& last = record.calls.back();
  return fmt::format("did not make this call; its last call, number {}: {}", last.event.sequence,
                     describeEntry(last, origin));
}

std::string divergenceText(const Records& records, const TeamCall& call, int64_t origin) {
  std::vector<int64_t> team = ranksIn(call.mask);
  append(team, call.members | std::views::keys | std::views::filter([&](int64_t r) { return !contains(team, r); }));
  std::string text = fmt::format("call {} of the team of {}\n", call.sequence, list(team));
  for (int64_t r : team) {
    const auto member = call.members.find(r);
    text += fmt::format("    rank {}: {}\n", r,
                        member == call.members.end() ? "no record"
                        : member->second == nullptr  ? whereItWas(records.at(r), origin)
                                                     : describeEntry(*member->second, origin));
  }
  return text;
}

std::string agreementText(const Records& records, int64_t origin) {
  std::string text = "  no divergence: the recorded calls of all ranks agree\n";
  for (const auto& [r, record] : records) {
    if (!record.calls.empty()) {
      text += fmt::format("    rank {}: {}\n", r, describeEntry(record.calls.back(), origin));
    }
  }
  return text;
}

std::string worldText(const std::string& world, const Records& records) {
  const FlightRecord& any = records.begin()->second;
  std::vector<int64_t> expected = ranksNamed(world);  // the ranks of a lane
  if (expected.empty()) {
    expected = firstRanks(any.size);
  }
  const std::vector<int64_t> missing = filtered(expected, [&](int64_t r) { return !records.contains(r); });
  std::string text = fmt::format("{}: {} ranks, transport {}; {}\n", world, expected.size(), any.transport,
                                 missing.empty() ? "records of all" : "no record of " + list(missing));
  std::map<std::string, std::vector<int64_t>> failures;
  std::map<uint64_t, uint64_t> teams;
  int64_t origin = INT64_MAX;
  for (const auto& [r, record] : records) {
    failures[record.failure].push_back(r);
    if (!record.writer.empty()) {
      text += fmt::format("  the record of rank {} was written by {}\n", r, record.writer);
    }
    for (const Entry& e : record.calls) {
      origin = std::min(origin, e.begin);
      if (e.event.teamSequence != 0) {
        teams[e.event.call.teamHash] = e.event.call.teamMask;
      }
    }
  }
  for (const auto& [failure, ranks] : failures) {
    text += fmt::format("  failure reported by {}: {}\n", list(ranks), failure);
  }
  std::vector<TeamCall> divergences;
  for (const auto& [hash, mask] : teams) {
    if (std::optional<TeamCall> call = firstDivergence(records, hash, mask); call.has_value()) {
      divergences.push_back(std::move(*call));
    }
  }
  if (divergences.empty()) {
    return text + agreementText(records, origin);
  }
  std::ranges::stable_sort(divergences, {}, &TeamCall::begin);
  return text + "  first divergence: " + joined(divergences, "  then: ", [&](const TeamCall& call) {
           return divergenceText(records, call, origin);
         });
}

}  // namespace

std::string blame(const std::string& directory) {
  check(std::filesystem::is_directory(directory),
        "[blame] {} is no directory; give the one that MESHFUSE_FLIGHT_DIR named", directory);
  std::map<std::string, Records> worlds;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".flight") {
      const FlightRecord record = readFlightRecord(entry.path().string());
      worlds[record.world][record.rank] = record;
    }
  }
  check(!worlds.empty(),
        "[blame] no flight records in {}; they are written when a call fails while MESHFUSE_FLIGHT_DIR names it",
        directory);
  return joined(worlds, "", [](const auto& world) { return worldText(world.first, world.second); });
}

}  // namespace meshfuse
