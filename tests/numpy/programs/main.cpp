// Random programs with their inputs and results, as a stream that compare.py reads.
//
//   numpy_programs FIRST LAST STEP            the programs of tests/fuzz of these seeds, to the standard output
//   numpy_programs FIRST LAST STEP special    the same; some elements of floating inputs are infinite, NaN, very large or small
//
// Each program is called twice, and both calls must give the same bits.
//
// A record is a line of words, the last of them the number of bytes, and that many bytes:
//
//   seed                 its digits; begins a program
//   program              the program, .fir
//   input                a .npy file for each input, in order; numbers have no dims
//   whole OUTPUT         a .npy file: an output on one rank
//   part OUTPUT RANK     a .npy file: what a rank holds of an output
//   places OUTPUT RANK   a .npy file: where these elements stand in the whole output, in row-major order
//   error WAY KIND       the message; WAY is "making", "one" (rank) or "ranks"
//   end                  nothing, or how the process of the program ended
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "exec/fusion_executor_cache.h"
#include "fuzz/program.h"
#include "fuzz/random.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "sanitized.h"
#include "tensor/npy.h"

namespace meshfuse {

namespace {

constexpr int kSeconds = kSanitized ? 600 : 60;  // for one program

void writeAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file, bytes.data(), bytes.size());
    if (n <= 0) {
      _exit(1);  // nobody reads
    }
    bytes.remove_prefix(n);
  }
}

std::string record(std::string_view words, std::string_view bytes) {
  return fmt::format("{} {}\n{}", words, bytes.size(), bytes);
}

Tensor tensorOf(const Argument& argument) {
  if (const Tensor* tensor = std::get_if<Tensor>(&argument)) {
    return *tensor;
  }
  if (const double* number = std::get_if<double>(&argument)) {
    return Tensor::scalar(*number, DataType::Double);
  }
  Tensor result = Tensor::empty({}, argument.index() == 2 ? DataType::Int : DataType::Bool);
  storeInteger(result.data(), result.dtype(),
               argument.index() == 2 ? std::get<int64_t>(argument) : std::get<bool>(argument));
  return result;
}

// Programs write to contiguous inputs only.
Argument copyOf(const Argument& argument) {
  const Tensor* tensor = std::get_if<Tensor>(&argument);
  return tensor != nullptr && tensor->isContiguous() ? Argument(tensor->clone()) : argument;
}

// The row-major position of each element of a tensor of these sizes.
Tensor positionsIn(std::span<const int64_t> sizes) {
  Tensor positions = Tensor::empty({sizes.begin(), sizes.end()}, DataType::Int);
  std::iota(positions.data_as<int64_t>(), positions.data_as<int64_t>() + positions.numel(), 0);
  return positions;
}

// Some elements of floating tensors become numbers at which functions jump, overflow or vanish.
void makeSpecial(fuzz::Program& program) {
  fuzz::Random random(program.seed);
  for (Argument& input : program.inputs) {
    auto* tensor = std::get_if<Tensor>(&input);
    if (tensor == nullptr || !isFloatingPoint(tensor->dtype())) {
      continue;
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    static const std::vector<double> kSpecial = {kInfinity, -kInfinity, std::nan(""), 3e38,  -3e38, 6e4, 1e-38,
                                                 -1e-41,    -0.0,       0.0,          1e-20, 1.0,   -1,  0.5};
    for (int64_t count = 1 + tensor->numel() / 8; count > 0; count--) {
      std::vector<int64_t> position;
      for (const int64_t size : tensor->sizes()) {
        position.push_back(random.below(size));
      }
      tensor->set(position, random.of(kSpecial));
    }
  }
}

// The results of the second call.
std::vector<Tensor> resultsOfTwoCalls(FusionExecutorCache& cache, const std::vector<Argument>& inputs) {
  std::vector<std::string> first;
  for (const bool again : {false, true}) {
    std::vector<Argument> copies;
    for (const Argument& input : inputs) {
      copies.push_back(copyOf(input));
    }
    std::vector<Tensor> results = cache.runFusionWithInputs(copies);
    if (again) {
      for (size_t k = 0; k < results.size(); k++) {
        invariant(npyBytes(results[k]) == first[k], "[numpy] the second call gave other bits of output {}", k);
      }
      return results;
    }
    for (const Tensor& result : results) {
      first.push_back(npyBytes(result));
    }
  }
  return {};
}

std::vector<Tensor> resultsOfOneRank(const fuzz::Program& program) {
  FusionExecutorCache cache(fuzz::withoutShardings(*program.fusion), {.threads = 1, .verify = Verify::Off});
  return resultsOfTwoCalls(cache, program.inputs);
}

// The records of what each rank holds. `whole`: the outputs on one rank, for their sizes.
std::string partsOfRanks(const fuzz::Program& program, const std::vector<Tensor>& whole) {
  std::mutex mutex;
  std::string records;
  LoopbackOptions options;
  options.deadline = std::chrono::seconds(kSeconds);
  runLoopback(
      program.ranks,
      [&](Communicator& comm) {
        FusionExecutorCache cache(program.fusion->clone(),
                                  {.communicator = &comm, .threads = 1, .verify = Verify::Off});
        std::vector<Argument> local;
        for (size_t k = 0; k < program.inputs.size(); k++) {
          const Tensor* tensor = std::get_if<Tensor>(&program.inputs[k]);
          const Val* in = program.fusion->inputs()[k];
          local.push_back(tensor == nullptr ? program.inputs[k]
                                            : Argument(shardTensor(*tensor, in->asTensor(), comm.rank()).clone()));
        }
        const std::vector<Tensor> results = resultsOfTwoCalls(cache, local);
        const std::shared_ptr<const Fusion> planned = cache.planned();
        std::lock_guard lock(mutex);
        for (size_t k = 0; k < results.size(); k++) {
          const TensorView* tv = planned->outputs()[k]->asTensor();
          const Tensor places = shardTensor(positionsIn(whole[k].sizes()), tv, comm.rank());
          records += record(fmt::format("part {} {}", k, comm.rank()), npyBytes(results[k]));
          records += record(fmt::format("places {} {}", k, comm.rank()), npyBytes(places));
        }
      },
      options);
  return records;
}

// Runs `body`; what it throws becomes a record.
void guarded(int file, std::string_view way, const std::function<void()>& body) {
  const auto refused = [&](std::string_view kind, const std::exception& e) {
    writeAll(file, record(fmt::format("error {} {}", way, kind), e.what()));
  };
  try {
    body();
  } catch (const UserError& e) {
    refused("UserError", e);
  } catch (const InternalError& e) {
    refused("InternalError", e);
  } catch (const DeviceError& e) {
    refused("DeviceError", e);
  } catch (const std::exception& e) {
    refused("exception", e);
  }
}

void writeProgram(uint64_t seed, bool special, int file) {
  fuzz::Program program;
  guarded(file, "making", [&] { program = fuzz::randomProgram(seed); });
  if (program.fusion == nullptr) {
    return;
  }
  if (special) {
    makeSpecial(program);
  }
  std::string given = record("program", program.fusion->toString());
  for (const Argument& input : program.inputs) {
    given += record("input", npyBytes(tensorOf(input)));
  }
  writeAll(file, given);
  std::vector<Tensor> whole;
  guarded(file, "one", [&] {
    whole = resultsOfOneRank(program);
    for (size_t k = 0; k < whole.size(); k++) {
      writeAll(file, record(fmt::format("whole {}", k), npyBytes(whole[k])));
    }
  });
  if (program.ranks > 1 && !whole.empty()) {
    guarded(file, "ranks", [&] { writeAll(file, partsOfRanks(program, whole)); });
  }
}

// Writes the program in a process of its own, so that a crash or a hang ends no other. Says how that process ended.
std::string writeInChild(uint64_t seed, bool special) {
  int ends[2];
  if (pipe(ends) != 0) {
    return "no pipe";
  }
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(kSeconds);
    writeProgram(seed, special, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  char buffer[1 << 16];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    writeAll(STDOUT_FILENO, {buffer, static_cast<size_t>(n)});
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGALRM ? fmt::format("no end within {} s", kSeconds)
                                       : fmt::format("signal {}", WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  const bool special = argc == 5 && std::string_view(argv[4]) == "special";
  if (argc != 4 && !special) {
    fmt::print(stderr, "usage: numpy_programs FIRST LAST STEP [special]\n");
    return 2;
  }
  setenv("MESHFUSE_CACHE_DIR", "off", 1);
  const uint64_t last = std::strtoull(argv[2], nullptr, 10);
  const uint64_t step = std::max<uint64_t>(1, std::strtoull(argv[3], nullptr, 10));
  for (uint64_t seed = std::strtoull(argv[1], nullptr, 10); seed <= last; seed += step) {
    meshfuse::writeAll(STDOUT_FILENO, meshfuse::record("seed", std::to_string(seed)));
    const std::string ending = meshfuse::writeInChild(seed, special);
    meshfuse::writeAll(STDOUT_FILENO, meshfuse::record("end", ending));
  }
  return 0;
}
