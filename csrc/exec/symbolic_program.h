// SymbolicProgram: one fusion for every number of devices.
//
//   auto mesh = DeviceMesh::create({{"tp"}});
//   w->outer_split(0, mesh.size("tp"));
//   w->axis(0)->parallelize(mesh.axis("tp"));
//   SymbolicProgram program(std::move(fusion));
//   FusionExecutorCache onTwo(program, {.communicator = &two}), onEight(program, {.communicator = &eight});
//
// Shardings propagate once, with symbolic mesh sizes; each number of devices then gets a copy of the program with its sizes. The
// shardings are the same for all numbers: where a mesh size does not divide a dim, shards are uneven. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "digits/prover.h"
#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

class Fusion;

class SymbolicProgram {
 public:
  // Propagates shardings. UserError as check-annotations.
  explicit SymbolicProgram(std::unique_ptr<Fusion> fusion);
  ~SymbolicProgram();
  SymbolicProgram(const SymbolicProgram&) = delete;
  SymbolicProgram& operator=(const SymbolicProgram&) = delete;

  const Fusion& written() const { return *written_; }
  // Every tensor has a sharding, with mesh sizes as symbols: its text names no number of devices.
  const Fusion& propagated() const { return *propagated_; }
  // The decisions of the passes that run before sizes are known, with reasons; costs were compared at the hints of the meshes.
  const std::vector<std::string>& remarks() const { return remarks_; }
  // The assumptions of propagation, as "tp divides 512"; where one does not hold, shards are uneven.
  std::vector<std::string> guards() const;
  // The guards that do not hold at `sizes`.
  std::vector<std::string> failingGuards(const MeshSizes& sizes) const;

  // The program at these sizes, created at the first request. Errors as specialize().
  std::shared_ptr<const Fusion> at(const MeshSizes& sizes);
  // The same, with the last size from the number of ranks.
  std::shared_ptr<const Fusion> forRanks(int64_t ranks, const MeshSizes& given = {});

  // How often shardings were propagated, and the number of specialized copies.
  int64_t propagations() const { return propagations_; }
  int64_t specializations() const;

 private:
  std::unique_ptr<Fusion> written_;
  std::unique_ptr<Fusion> propagated_;
  std::vector<std::string> remarks_;
  std::vector<Prover::Fact> guards_;
  int64_t propagations_ = 0;
  mutable std::mutex mutex_;  // guards specialized_
  std::map<MeshSizes, std::shared_ptr<const Fusion>> specialized_;
};

}  // namespace meshfuse
