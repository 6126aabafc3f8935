// SymbolicProgram: one fusion for every number of devices.
//
//   auto mesh = DeviceMesh::create({{"tp"}});
//   w->outer_split(0, mesh.size("tp"));
//   w->axis(0)->parallelize(mesh.axis("tp"));
//   SymbolicProgram program(std::move(fusion));
//   FusionExecutorCache onTwo(program, {.communicator = &two}), onEight(program, {.communicator = &eight});
//
// Shardings spread once, over symbols; each count then takes a copy with its sizes. What spread holds for all of them: where a count
// does not divide what it cuts, parts are uneven. Several threads may ask at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "digits/int_expr.h"
#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

class Fusion;

class SymbolicProgram {
 public:
  // Spreads shardings. UserError as check-annotations.
  explicit SymbolicProgram(std::unique_ptr<Fusion> fusion);
  ~SymbolicProgram();
  SymbolicProgram(const SymbolicProgram&) = delete;
  SymbolicProgram& operator=(const SymbolicProgram&) = delete;

  const Fusion& written() const { return *written_; }
  // Every tensor placed, sizes of axes as symbols: no number of devices stands in its text.
  const Fusion& propagated() const { return *propagated_; }
  // What passes decided for the meshes' hints, and why.
  const std::vector<std::string>& remarks() const { return remarks_; }
  // What was taken to be so, as "tp divides 512"; where it is not, parts are uneven.
  std::vector<std::string> guards() const;
  // Those of the guards that do not hold at `sizes`.
  std::vector<std::string> failingGuards(const MeshSizes& sizes) const;

  // The program at these sizes, made when first asked for. Errors as specialize().
  std::shared_ptr<const Fusion> at(const MeshSizes& sizes);
  // The same where the number of ranks gives the last size.
  std::shared_ptr<const Fusion> forRanks(int64_t ranks, const MeshSizes& given = {});

  // How often shardings spread, and for how many sizes there is a copy.
  int64_t propagations() const { return propagations_; }
  int64_t specializations() const;

 private:
  struct Guard {
    IntExpr divisor;
    IntExpr dividend;
  };
  std::unique_ptr<Fusion> written_;
  std::unique_ptr<Fusion> propagated_;
  std::vector<std::string> remarks_;
  std::vector<Guard> guards_;
  int64_t propagations_ = 0;
  mutable std::mutex mutex_;  // of what follows
  std::map<MeshSizes, std::shared_ptr<const Fusion>> specialized_;
};

}  // namespace meshfuse
