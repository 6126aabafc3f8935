// Launches of graphs: one operation of a stream, in which the nodes run.
//
//   before a node   what is before the launch, and the nodes on which it depends
//   after a launch  all of its nodes
#include <algorithm>

#include "work.h"

namespace simgpu {

using State = GraphRun::Step::State;

// What a launch would read or write in memory that has been freed. If it is another allocation by now, the address is as good as a new one.
std::string Devices::staleAddress(const Node& node) {
  for (const HeldAddress& h : node.held) {
    const Allocation* const owner = memoryOf(h.address)->owner(h.address);
    if (owner == nullptr || owner->isFreed) {
      return node.name + ": holds an address in memory of " + h.allocation + ", which has been freed";
    }
  }
  return "";
}

int32_t Devices::launchGraph(const Request& r, uint64_t process) {
  ExecutableGraph* const executable = graphs_.findExecutable(r.a);
  const auto it = streams_.find(r.stream);
  if (executable == nullptr) {
    return kInvalidValue;
  }
  if (it == streams_.end() || it->second.isDestroyed) {
    return kInvalidHandle;
  }
  if (isCapturing(r.stream)) {
    return enqueue(r, process, {.kind = Work::Kind::Graph});
  }
  for (const Node& node : executable->nodes) {
    if (const std::string stale = staleAddress(node); !stale.empty()) {
      reports_.push_back(std::string(r.name) + ": " + stale);
      return kSuccess;
    }
    if (node.work.kind == Work::Kind::Record && !isEvent(node.work.event)) {
      reports_.push_back(std::string(r.name) + ": " + node.name + " records an event that has been destroyed");
      return kSuccess;
    }
  }
  const auto run = std::make_shared<GraphRun>();
  run->stream = r.stream;
  Work work{.kind = Work::Kind::Graph};
  work.run = run;
  const auto launch = append(r.stream, process, r.name, std::move(work), executable->last);
  if (const std::string posting = communicators_.postingOn(r.stream); !posting.empty()) {
    report(*launch, "is enqueued while " + posting + " is in progress on the stream: wait for ncclSuccess before");
  }
  if (isStickyLaunch(r, process)) {
    run->failingStep = random_() % std::max<size_t>(executable->nodes.size(), 1);
  }
  if (std::ranges::any_of(executable->nodes, [](const Node& node) { return node.work.captured != nullptr; })) {
    lastCollectives_[{process, streams_.at(r.stream).device}] = launch;
  }
  executable->last = launch;
  executable->launches++;
  for (size_t i = 0; i < executable->nodes.size(); i++) {
    const Node& node = executable->nodes[i];
    auto operation = std::make_shared<Operation>();
    operation->stream = executable->streams[i];
    operation->number = executable->launches;
    operation->launchStream = launch->stream;
    operation->launchNumber = launch->number;
    operation->name = node.name + " in " + launch->name;
    notePinned(process, launch, node.work);
    if (node.work.kind == Work::Kind::Record) {
      Event& event = events_.at(node.work.event);
      event = {.device = event.device, .measures = event.measures, .mark = operation};
    }
    run->steps.push_back({.task = {std::move(operation), node.work}, .device = node.device, .dependencies = node.dependencies});
    if (node.work.kind == Work::Kind::Collective) {
      postCalls(run, i, *node.work.captured);
    }
  }
  return kSuccess;
}

void Devices::postCalls(const std::shared_ptr<GraphRun>& run, size_t step, const CapturedCalls& captured) {
  const std::shared_ptr<Operation>& operation = run->steps[step].task.operation;
  const auto posted = std::make_shared<Posted>();
  posted->rank = captured.rank;
  posted->places.push_back({.operation = operation, .run = run, .step = step});
  run->steps[step].task.work.posted = posted;
  const Communicators::Rank* const rank = communicators_.find(captured.rank);
  if (rank == nullptr) {
    return report(*operation, "the communicator has been destroyed or aborted");
  }
  posted->communicator = rank->communicator;
  posted->thread = rank->thread;
  posted->device = rank->device;
  for (const auto& c : captured.calls) {
    const auto call = std::make_shared<RankCall>();
    call->call = c->call;
    call->rank = c->rank;
    call->ranks = c->ranks;
    Communicators::findRegistered(*rank, *call);
    const auto expectSame = [&](const char* what, std::optional<uint64_t> captured, std::optional<uint64_t> now) {
      const auto place = [](std::optional<uint64_t> offset) {
        return offset ? "at offset " + std::to_string(*offset) + " of registered memory" : "not in registered memory";
      };
      if (captured != now) {
        report(*operation, c->name() + " was captured with its " + what + " " + place(captured) + ", and now it is " + place(now));
      }
    };
    expectSame("operand", c->inOffset, call->inOffset);
    expectSame("result", c->outOffset, call->outOffset);
    communicators_.noteUse(captured.rank, *call, *streams_.at(run->stream).last);
    call->capture = c->capture;
    call->posted = posted.get();
    posted->calls.push_back(call);
    if (const std::string difference = communicators_.place(captured.rank, call); !difference.empty()) {
      reports_.push_back(difference);
    }
    call->operation = std::make_shared<Operation>(*operation);
    call->operation->name = call->name() + " in " + operation->name;
  }
  communicators_.noteLaunched(captured.rank, posted, *streams_.at(run->stream).last);
}

void Devices::makeReady(GraphRun& run, size_t i) {
  GraphRun::Step& step = run.steps[i];
  Operation& operation = *step.task.operation;
  operation.before = streams_.at(run.stream).queue.front().task.operation->before;
  for (const size_t other : step.dependencies) {
    operation.before.join(run.steps[other].task.operation->after);
  }
  step.state = State::Ready;
  step.due = std::chrono::steady_clock::now() + delay();
}

void Devices::advance(Stream& s, Queued& q) {
  const std::shared_ptr<GraphRun> run = q.task.work.run;
  if (!run->hasBegun) {
    begin(s, q);
    run->hasBegun = true;
    for (size_t i = 0; i < run->steps.size(); i++) {
      if (run->steps[i].dependencies.empty()) {
        makeReady(*run, i);
      }
    }
    if (run->steps.empty()) {
      end(s);
    }
    return;
  }
  const Time now = std::chrono::steady_clock::now();
  std::vector<size_t> ready;
  for (size_t i = 0; i < run->steps.size(); i++) {
    if (const auto due = run->nextOf(run->steps[i]); due && *due <= now) {
      ready.push_back(i);
    }
  }
  if (ready.empty()) {
    return;
  }
  const size_t i = ready[random_() % ready.size()];
  if (run->failingStep == i) {
    return failContext(s.process, s.device);
  }
  const Task& task = run->steps[i].task;
  if (task.work.kind != Work::Kind::Collective) {
    this->run(run->steps[i].device, task);
    return endStep(run, i, task.operation->before);
  }
  Posted& posted = *task.work.posted;
  if (!posted.places[0].isReached) {
    posted.places[0].isReached = true;
    if (!posted.isAborted) {
      reach(task.work.posted);
    }
  }
  if (posted.isAborted) {
    leaveResults(posted, task.operation);
    return endStep(run, i, task.operation->before);
  }
  finishDue(posted);
}

void Devices::endStep(const std::shared_ptr<GraphRun>& run, size_t i, Clock after) {
  GraphRun::Step& step = run->steps[i];
  step.state = State::Ended;
  step.task.operation->hasEnded = true;
  step.task.operation->endTime = std::chrono::steady_clock::now();
  after.know(step.task.operation->stream, step.task.operation->number);
  step.task.operation->after = std::move(after);
  const auto hasEnded = [&](size_t other) { return run->steps[other].state == State::Ended; };
  for (size_t other = 0; other < run->steps.size(); other++) {
    const GraphRun::Step& next = run->steps[other];
    if (next.state == State::Waits && std::ranges::all_of(next.dependencies, hasEnded)) {
      makeReady(*run, other);
    }
  }
  if (++run->ended < run->steps.size()) {
    return;
  }
  Stream& s = streams_.at(run->stream);
  for (const GraphRun::Step& ended : run->steps) {
    s.clock.join(ended.task.operation->after);
  }
  for (const GraphRun::Step& ended : run->steps) {  // whoever knows of the launch knows of its nodes
    s.clock.forget(ended.task.operation->stream);
  }
  end(s);
}

int32_t Devices::setNode(const Request& r, Work work) {
  ExecutableGraph* const executable = graphs_.findExecutable(r.a);
  if (executable == nullptr) {
    return kInvalidValue;
  }
  const auto node = std::ranges::find(executable->nodes, r.b, &Node::id);
  if (node == executable->nodes.end()) {
    return kInvalidValue;
  }
  if (graphs_.find(executable->graph) == nullptr) {
    reports_.push_back(std::string(r.name) + ": the graph of the node, from which the executable graph was made, has been destroyed");
    return kSuccess;
  }
  if (isOpaque(*node)) {
    reports_.push_back(std::string(r.name) + ": " + node->name + " is a library's, and its parameters are not the program's");
    return kSuccess;
  }
  if (node->work.kind != work.kind) {
    return kInvalidValue;
  }
  Node changed = *node;
  changed.work = std::move(work);
  if (changed.work.kind == Work::Kind::Launch) {
    const auto function = functions_.find(changed.work.shape.function);
    if (function == functions_.end()) {
      return kInvalidValue;
    }
    const uint32_t cluster = node->work.shape.cluster;  // an attribute of the node
    if (changed.work.shape.blocks % cluster != 0) {
      return kInvalidValue;
    }
    changed.work.shape.cluster = cluster;
    changed.device = r.device;  // that of the function
    changed.name = "cuLaunchKernelEx of " + function->second.name + node->name.substr(node->name.find(" (node"));
  } else if (changed.work.bytes == 0) {
    return kInvalidValue;
  }
  if (changeOf(*node, changed, random_) != GraphUpdateResult::Success) {
    return kInvalidValue;
  }
  changed.held = addressesOf(changed.work);
  *node = std::move(changed);
  return kSuccess;
}

Graphs::Update Devices::updateGraph(const Request& r) {
  ExecutableGraph* const executable = graphs_.findExecutable(r.a);
  const Graph* const graph = graphs_.find(r.b);
  if (executable == nullptr || graph == nullptr) {
    return {.result = GraphUpdateResult::Error};
  }
  return graphs_.update(*executable, *graph, random_);
}

}  // namespace simgpu
