// Are the collectives of the host transport faster than those of MPI, in the same processes?
//
//   mpirun -np 2 collectives_mpi_bench [--json FILE] [--quick] [--only KIND] [--bytes N]
//
// Both run in one job, interleaved round by round; a round's time is that of its slowest rank. Bytes are those of one rank's input
// for all-reduce, of the whole result for all-gather, of the whole input for reduce-scatter and all-to-all. The mean is of the sizes
// from 4 KiB on, "worst" of all. "shared" buffers come from Communicator::allocate, as those of compiled programs do; "ordinary" ones from
// malloc. Each of the three has buffers of its own, so that none finds in a cache what another has just read. Results are compared with
// MPI's.
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "multidevice/transport/host/world.h"

namespace {

using namespace meshfuse;

constexpr double kGoal = 2;
constexpr int64_t kSmallestInMean = 4 << 10;

struct Buffers {
  float* in;
  float* out;
};

struct Compared {
  std::string name;
  std::function<void(Communicator&, Buffers, int64_t)> ours;
  std::function<void(Buffers, int64_t)> mpi;
  std::function<int64_t(int64_t, int)> outputs;  // floats of the result, of n floats among r ranks
};

std::vector<Compared> collectives() {
  return {
      {"all-reduce",
       [](Communicator& c, Buffers b, int64_t n) {
         c.allReduce(c.world(), b.in, b.out, n, DataType::Float, ReduceOp::Sum);
       },
       [](Buffers b, int64_t n) {
         MPI_Allreduce(b.in, b.out, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       },
       [](int64_t n, int) { return n; }},
      {"all-gather",
       [](Communicator& c, Buffers b, int64_t n) {
         c.allGather(c.world(), b.in, b.out, n / c.size(), DataType::Float);
       },
       [](Buffers b, int64_t n) {
         int ranks = 1;
         MPI_Comm_size(MPI_COMM_WORLD, &ranks);
         const int part = static_cast<int>(n / ranks);
         MPI_Allgather(b.in, part, MPI_FLOAT, b.out, part, MPI_FLOAT, MPI_COMM_WORLD);
       },
       [](int64_t n, int) { return n; }},
      {"reduce-scatter",
       [](Communicator& c, Buffers b, int64_t n) {
         c.reduceScatter(c.world(), b.in, b.out, n / c.size(), DataType::Float, ReduceOp::Sum);
       },
       [](Buffers b, int64_t n) {
         int ranks = 1;
         MPI_Comm_size(MPI_COMM_WORLD, &ranks);
         MPI_Reduce_scatter_block(b.in, b.out, static_cast<int>(n / ranks), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       },
       [](int64_t n, int ranks) { return n / ranks; }},
      {"all-to-all",
       [](Communicator& c, Buffers b, int64_t n) { c.allToAll(c.world(), b.in, b.out, n / c.size(), DataType::Float); },
       [](Buffers b, int64_t n) {
         int ranks = 1;
         MPI_Comm_size(MPI_COMM_WORLD, &ranks);
         const int part = static_cast<int>(n / ranks);
         MPI_Alltoall(b.in, part, MPI_FLOAT, b.out, part, MPI_FLOAT, MPI_COMM_WORLD);
       },
       [](int64_t n, int) { return n; }}};
}

// Seconds of one call, of the slowest rank.
double timed(int calls, const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    call();
  }
  double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
  double slowest = own;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  std::string collective;
  int64_t bytes;
  double mpi, shared, ordinary;       // median seconds
  double sharedRatio, ordinaryRatio;  // median of the rounds' ratios
};

Row measure(Communicator& world, const Compared& c, int64_t bytes, int rounds) {
  const int64_t n = bytes / 4;
  const auto size = static_cast<size_t>(bytes);
  const std::shared_ptr<void> sharedIn = world.allocate(size);
  const std::shared_ptr<void> sharedOut = world.allocate(size);
  const std::shared_ptr<void> ordinaryIn = allocateOrdinary(size);
  const std::shared_ptr<void> ordinaryOut = allocateOrdinary(size);
  const std::shared_ptr<void> mpiIn = allocateOrdinary(size);
  const std::shared_ptr<void> mpiOut = allocateOrdinary(size);
  const Buffers shared{static_cast<float*>(sharedIn.get()), static_cast<float*>(sharedOut.get())};
  const Buffers ordinary{static_cast<float*>(ordinaryIn.get()), static_cast<float*>(ordinaryOut.get())};
  const Buffers mpi{static_cast<float*>(mpiIn.get()), static_cast<float*>(mpiOut.get())};
  for (int64_t i = 0; i < n; ++i) {
    shared.in[i] = ordinary.in[i] = mpi.in[i] = static_cast<float>((i * 31 + world.rank() * 17) % 1001) / 8.0f;
  }
  const int calls = static_cast<int>(std::clamp<int64_t>((4 << 20) / bytes, 1, 1000));
  Row row{c.name, bytes, 0, 0, 0, 0, 0};
  std::vector<double> times[3];
  std::vector<double> ratios[2];
  for (int round = 0; round < rounds + 2; ++round) {
    const double m = timed(calls, [&] { c.mpi(mpi, n); });
    const double s = timed(calls, [&] { c.ours(world, shared, n); });
    const double o = timed(calls, [&] { c.ours(world, ordinary, n); });
    if (round >= 2) {  // the first two warm up
      times[0].push_back(m), times[1].push_back(s), times[2].push_back(o);
      ratios[0].push_back(m / s), ratios[1].push_back(m / o);
    }
  }
  const auto resultBytes = static_cast<size_t>(c.outputs(n, world.size())) * 4;
  if (std::memcmp(mpi.out, shared.out, resultBytes) != 0 || std::memcmp(mpi.out, ordinary.out, resultBytes) != 0) {
    fmt::print(stderr, "{} of {} bytes: results differ from MPI's\n", c.name, bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  row.mpi = median(times[0]), row.shared = median(times[1]), row.ordinary = median(times[2]);
  row.sharedRatio = median(ratios[0]), row.ordinaryRatio = median(ratios[1]);
  return row;
}

void report(const std::vector<Row>& rows, int ranks, const std::string& json) {
  std::string text;
  // Goals are those of two ranks, which have a core each.
  auto add = [&](const std::string& name, double figure, double goal) {
    text += fmt::format(
        "{}  {{\"name\": \"{}\", \"figure\": {:.3f}, \"unit\": \"x of MPI\", \"goal\": {}, \"better\": \"higher\"}}",
        text.empty() ? "" : ",\n", name, figure, ranks == 2 ? fmt::format("{}", goal) : "null");
  };
  fmt::print("{:<15} {:>9} {:>10} {:>10} {:>10} {:>8} {:>9}\n", "", "bytes", "MPI us", "shared us", "ordinary",
             "shared x", "ordinary x");
  for (size_t i = 0; i < rows.size();) {
    double logs = 0, ordinaryLogs = 0, count = 0, worst = 1e9;
    const size_t begin = i;
    for (; i < rows.size() && rows[i].collective == rows[begin].collective; ++i) {
      const Row& r = rows[i];
      fmt::print("{:<15} {:>9} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.2f} {:>9.2f}\n", r.collective, r.bytes, r.mpi * 1e6,
                 r.shared * 1e6, r.ordinary * 1e6, r.sharedRatio, r.ordinaryRatio);
      worst = std::min(worst, r.sharedRatio);
      if (r.bytes >= kSmallestInMean) {
        logs += std::log(r.sharedRatio), ordinaryLogs += std::log(r.ordinaryRatio);
        ++count;
      }
    }
    const std::string name = fmt::format("collectives/{}/{} ranks", rows[begin].collective, ranks);
    fmt::print("{:<15} geometric mean {:.2f} (goal {}), worst {:.2f}; ordinary buffers {:.2f}\n\n",
               rows[begin].collective, std::exp(logs / count), kGoal, worst, std::exp(ordinaryLogs / count));
    add(name, std::exp(logs / count), kGoal);
    add(name + "/worst size", worst, 1.0);
    add(name + "/ordinary buffers", std::exp(ordinaryLogs / count), 1.0);
  }
  if (!json.empty()) {
    std::FILE* file = std::fopen(json.c_str(), "w");
    if (file == nullptr) {
      fmt::print(stderr, "cannot write {}\n", json);
      return;
    }
    fmt::print(file, "[\n{}\n]\n", text);
    std::fclose(file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::string json;
  std::string only;
  std::vector<int64_t> sizes = {8,         64,      512,     4 << 10,  16 << 10, 64 << 10,
                                256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  int rounds = 25;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      rounds = 7;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else if (std::strcmp(argv[i], "--bytes") == 0 && i + 1 < argc) {
      sizes = {std::atoll(argv[++i])};
    }
  }
  int rank = 0;
  {
    const std::unique_ptr<Communicator> world = openWorld();
    rank = world->rank();
    std::vector<Row> rows;
    for (const Compared& c : collectives()) {
      if (!only.empty() && only != c.name) {
        continue;
      }
      for (int64_t bytes : sizes) {
        if (bytes < int64_t{4} * world->size()) {
          continue;  // not an element for each rank
        }
        rows.push_back(measure(*world, c, bytes, bytes > 16 << 20 ? rounds / 3 : rounds));
      }
    }
    if (rank == 0) {
      report(rows, world->size(), json);
    }
  }
  MPI_Finalize();
  return 0;
}
