// A rank reads a peer's buffer in place. Meanwhile the peer leaves the call by an error and changes the buffer. Then the call of the reader
// fails as well: it never succeeds with a mixture of old and new numbers.
//
// The reader writes to memory that it may not touch yet, so it stops inside the call, in a signal handler, until the buffer has changed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "base/error.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

constexpr int64_t kBlock = 1 << 18;
constexpr size_t kBlockBytes = kBlock * sizeof(float);
enum Moment : size_t { Reads, HasChanged, kMoments };

// The guarded memory of this process; a handler of signals has no arguments of its own.
struct GuardedMemory {
  std::byte* begin = nullptr;
  const SharedCounters* moments = nullptr;
};
GuardedMemory guarded;

void stopUntilChanged(int, siginfo_t* fault, void*) {
  const auto* at = static_cast<const std::byte*>(fault->si_addr);
  if (at < guarded.begin || at >= guarded.begin + kBlockBytes) {
    std::signal(SIGSEGV, SIG_DFL);  // a fault of another kind ends the process
    return;
  }
  guarded.moments->add(Reads);
  guarded.moments->await(HasChanged, 1);
  mprotect(guarded.begin, kBlockBytes, PROT_READ | PROT_WRITE);
}

void guard(float* block, const SharedCounters& moments) {
  guarded = {reinterpret_cast<std::byte*>(block), &moments};
  struct sigaction action {};
  action.sa_sigaction = stopUntilChanged;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  mprotect(guarded.begin, kBlockBytes, PROT_NONE);
}

// `in` and `out` have two blocks. Rank 0 writes to the second block of `out` only what it reads from rank 1.
struct InPlaceCall {
  std::string_view name;
  void (*make)(Communicator& comm, float* in, float* out);
};

const InPlaceCall kInPlaceCalls[] = {
    {"all-gather",
     [](Communicator& comm, float* in, float* out) {
       comm.allGather(Team{{0, 1}}, in, out, kBlock, DataType::Float);
     }},
    {"reduce-scatter",
     [](Communicator& comm, float* in, float* out) {
       comm.reduceScatter(Team{{0, 1}}, in, out + kBlock, kBlock, DataType::Float, ReduceOp::Sum);
     }},
    {"send and receive",
     [](Communicator& comm, float* in, float* out) {
       using Direction = Communicator::Transfer::Direction;
       const Communicator::Transfer receives{Direction::Recv, 1, out + kBlock, kBlockBytes};
       const Communicator::Transfer sends{Direction::Send, 0, in, kBlockBytes};
       comm.transfer({comm.rank() == 0 ? &receives : &sends, 1});
     }},
};

std::string readWhileChanged(Communicator& comm, const InPlaceCall& call, const SharedCounters& moments) {
  if (comm.rank() == 2) {
    moments.await(Reads, 1);
    comm.abort("a change of plan");
    return "aborted";
  }
  const std::shared_ptr<void> shared = comm.allocate(2 * kBlockBytes);
  auto* const in = static_cast<float*>(shared.get());
  std::fill(in, in + 2 * kBlock, 1.0F);
  void* const memory = mmap(nullptr, 2 * kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "[test] no memory");
  auto* const out = static_cast<float*>(memory);
  if (comm.rank() == 0) {
    guard(out + kBlock, moments);
  }
  std::string error = "no error";
  try {
    call.make(comm, in, out);
  } catch (const DeviceError& e) {
    error = e.what();
  }
  if (comm.rank() == 1) {
    std::fill(in, in + 2 * kBlock, 2.0F);
    moments.add(HasChanged);
  }
  return error;
}

TEST(InPlaceTest, ACallFailsIfAPeerChangedWhatItRead) {
  if (MultiDeviceTest::launched()) {
    GTEST_SKIP() << "starts processes of its own; run it without a launcher";
  }
  for (const InPlaceCall& call : kInPlaceCalls) {
    SCOPED_TRACE(call.name);
    const SharedCounters moments(kMoments);
    const auto outcomes = runProcesses(3, [&](Communicator& comm) { return readWhileChanged(comm, call, moments); },
                                       {.deadline = kFailureDeadline});
    expectSay(outcomes, {0, 1}, {"[rank 2/3]", "aborted: a change of plan"});
  }
}

}  // namespace
}  // namespace meshfuse
