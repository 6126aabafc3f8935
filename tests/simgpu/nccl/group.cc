#include "group.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../cuda/client.h"

namespace simgpu {

namespace {

using enum GroupedCall::Kind;

struct Group {
  int depth = 0;
  bool isLeftOut = false;  // no group has been started, and the end of this one does nothing either
  std::vector<GroupedCall> calls;
};
thread_local Group group;

bool isError(int result) { return result != kDone && result != kInProgress; }

// The first error, else whether something is in progress.
void note(int& all, int result) {
  if (isError(all)) {
    return;
  }
  if (result != kDone) {
    all = result;
  }
}

void abandon(const char* name, const Communicator& communicator) {
  askOf(name, Call::CommunicatorAbort, communicator);
  removeCommunicator(communicator);
}

int waitIfBlocking(const char* name, Communicator& communicator, int result) {
  return result == kInProgress && communicator.isBlocking ? stateOf(name, communicator, true) : result;
}

std::string_view payloadOf(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

// -- the calls of a group, first all are posted, then waited for ------------------------------------------------------

void postInit(GroupedCall& c) {
  Request r{.call = Call::CommunicatorInit, .device = c.device};
  std::strncpy(r.name, c.name, sizeof r.name - 1);
  c.communicator = addCommunicator(ask(r, payloadOf(c.rank)).value, c.device, c.isBlocking);
  c.communicator->rank = c.rank.rank;
  c.communicator->ranks = c.rank.ranks;
}

int awaitInit(GroupedCall& c) {
  const int result = waitIfBlocking(c.name, *c.communicator, stateOf(c.name, *c.communicator, false));
  if (isError(result) && c.isBlocking) {
    abandon(c.name, *c.communicator);
    return result;
  }
  *c.made = const_cast<void*>(c.communicator->given);
  // One that does not block has an error in its state only.
  return c.isBlocking ? result : kInProgress;
}

// The calls on one communicator, in their order.
int postCollectives(const char* name, const std::vector<GroupedCall*>& calls) {
  std::string payload;
  uint64_t failsLater = 0;
  for (const GroupedCall* c : calls) {
    payload += payloadOf(c->call);
    if (c->failsLater) {
      failsLater = payload.size() / sizeof c->call;
    }
  }
  const char* const who = calls.size() == 1 ? calls[0]->name : name;
  return static_cast<int>(askOf(who, Call::CommunicatorPost, *calls[0]->communicator, failsLater, payload).value);
}

int postSplit(GroupedCall& c) {
  const Reply reply = askOf(c.name, Call::CommunicatorSplit, *c.communicator, 0, payloadOf(c.split));
  const auto result = static_cast<int>(reply.value);
  if (!isError(result) && reply.more != 0) {
    *c.made = const_cast<void*>(addCommunicator(reply.more, c.communicator->device, c.isBlocking)->given);
  }
  return result;
}

int awaitSplit(GroupedCall& c) {
  const int result = waitIfBlocking(c.name, *c.communicator, kInProgress);
  if (*c.made == nullptr || !c.communicator->isBlocking) {
    return result;
  }
  const CommunicatorPointer part = findCommunicator(c.name, *c.made);
  if (isError(result)) {
    abandon(c.name, *part);
    *c.made = nullptr;
  } else {
    stateOf(c.name, *part, false);  // its rank and its count of ranks
  }
  return result;
}

int postDestroy(GroupedCall& c) {
  while (askOf(c.name, Call::CommunicatorFinalize, *c.communicator, 1).more == 0) {
    stateOf(c.name, *c.communicator, true);
  }
  return kInProgress;
}

int awaitDestroy(GroupedCall& c) {
  const int result = stateOf(c.name, *c.communicator, true);
  if (!isError(result)) {
    askOf(c.name, Call::CommunicatorRelease, *c.communicator);
    removeCommunicator(*c.communicator);
  }
  return result;
}

// An error of the group is one of all its communicators.
int failAll(const char* name, std::vector<GroupedCall>& calls, int error, std::string_view why) {
  for (const GroupedCall& c : calls) {
    if (c.communicator != nullptr) {
      askOf(name, Call::CommunicatorFail, *c.communicator, static_cast<uint64_t>(error));
    }
  }
  return failed(name, error, why);
}

int run(const char* name, std::vector<GroupedCall> calls) {
  for (const GroupedCall& c : calls) {
    if (c.error != kDone) {
      return failAll(name, calls, c.error, "a call fails as SIMGPU_FAULT asks");
    }
  }
  const auto isInit = [](const GroupedCall& c) { return c.kind == Init; };
  if (std::ranges::any_of(calls, isInit) && !std::ranges::all_of(calls, isInit)) {
    return failAll(name, calls, kWrongUsage, "communicators are made in a group with other calls");
  }
  std::vector<Use> uses;
  std::vector<std::vector<GroupedCall*>> byCommunicator;
  std::vector<Communicator*> used;
  for (GroupedCall& c : calls) {
    if (c.communicator != nullptr && std::ranges::find(used, c.communicator.get()) == used.end()) {
      used.push_back(c.communicator.get());
      uses.emplace_back(c.name, c.communicator);
    }
    if (c.kind != Collective) {
      continue;
    }
    const auto isSame = [&](const auto& other) { return other[0]->communicator == c.communicator; };
    const auto it = std::ranges::find_if(byCommunicator, isSame);
    (it == byCommunicator.end() ? byCommunicator.emplace_back() : *it).push_back(&c);
  }
  int result = kDone;
  std::vector<std::pair<GroupedCall*, int>> posted;
  for (const auto& same : byCommunicator) {
    posted.emplace_back(same[0], postCollectives(name, same));
  }
  for (GroupedCall& c : calls) {
    switch (c.kind) {
      case Init:
        postInit(c);
        posted.emplace_back(&c, kInProgress);
        break;
      case Split:
        posted.emplace_back(&c, postSplit(c));
        break;
      case Finalize:
        posted.emplace_back(&c, static_cast<int>(askOf(c.name, Call::CommunicatorFinalize, *c.communicator).value));
        break;
      case Destroy:
        posted.emplace_back(&c, postDestroy(c));
        break;
      case Collective:
        break;
    }
  }
  for (const auto& [c, answer] : posted) {
    if (isError(answer)) {
      note(result, answer);
    } else if (c->kind == Init) {
      note(result, awaitInit(*c));
    } else if (c->kind == Split) {
      note(result, awaitSplit(*c));
    } else if (c->kind == Destroy) {
      note(result, awaitDestroy(*c));
    } else {
      note(result, waitIfBlocking(c->name, *c->communicator, answer));
    }
  }
  return failed(name, result);
}

}  // namespace

int addToGroup(GroupedCall call) {
  if (group.depth == 0) {
    std::vector<GroupedCall> one;
    const char* const name = call.name;
    one.push_back(std::move(call));
    return run(name, std::move(one));
  }
  group.calls.push_back(std::move(call));
  return kDone;
}

void startGroup() {
  if (group.depth == 0 && isPlanted("group")) {
    group.isLeftOut = true;
  } else {
    group.depth++;
  }
}

int endGroup() {
  if (group.depth == 0 && std::exchange(group.isLeftOut, false)) {
    return kDone;
  }
  if (group.depth == 0) {
    return failed("ncclGroupEnd", kWrongUsage, "no group has been started");
  }
  if (--group.depth > 0) {
    return kDone;
  }
  return run("ncclGroupEnd", std::exchange(group.calls, {}));
}

}  // namespace simgpu
