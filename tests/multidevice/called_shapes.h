// Programs on ranks whose sizes vary from call to call, and their calls, compared with the interpreter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/fusion_executor_cache.h"
#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse {

using BuildOnRanks = std::function<void(Fusion&, int64_t ranks)>;

[[nodiscard]] std::unique_ptr<Fusion> fusionOf(const BuildOnRanks& build, int64_t ranks);
[[nodiscard]] TensorView* inputOfAnySize(Fusion& f, int64_t dims, const DeviceMesh& mesh);

// Rows over the ranks; the sum over them is an all-reduce.
void columnSums(Fusion& f, int64_t n);
// Rows over the ranks, and nothing communicates.
void rowsAlone(Fusion& f, int64_t n);
[[nodiscard]] std::vector<Argument> rowInputs(int64_t rows);
// The whole of the rows on each rank; a product with a cut weight is summed.
void productOfParts(Fusion& f, int64_t n);
[[nodiscard]] std::vector<Argument> productInputs(int64_t rows);

// A cache, and what it must give. `whole`: the global arguments of a call.
class CalledShapes {
 public:
  CalledShapes(const BuildOnRanks& build, std::vector<Argument> (*whole)(int64_t rows), Communicator& comm,
               size_t maxPlans = 64);

  FusionExecutorCache& cache() { return cache_; }
  [[nodiscard]] std::vector<Argument> shards(int64_t rows) const;
  void expectRight(int64_t rows) { expectRight(rows, shards(rows)); }
  void expectRight(int64_t rows, const std::vector<Argument>& local);
  // That the plan of the last call is for all sizes of a class.
  void expectOfClass() const;

 private:
  Communicator& comm_;
  std::vector<Argument> (*whole_)(int64_t rows);
  std::unique_ptr<Fusion> fusion_;
  FusionExecutorCache cache_;
};

}  // namespace meshfuse
