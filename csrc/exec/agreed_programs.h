// AgreedPrograms: the shapes on which the ranks have agreed, and the programs that they take for them. They change only by what all ranks know,
// in calls that all ranks make alike, so they are the same on all ranks, whatever fails on one of them. Shapes of calls in which ranks compare
// nothing are an exception: see below.
//
// What a rank does in a call is chosen from them and from the sizes of the call. Whether this rank has compiled a program does not matter:
//
//   shapes                               every rank                                     messages
//   agreed                               takes the program that was agreed              none
//   new, of a class with a program       takes that program                             one, which compares the sizes
//   new, of another class                plans one for the class or, if none holds      one, which compares the plans; for a class a second one,
//                                        for it, for constant sizes                     which compares the sizes, once all can run it
//   new, of no class                     plans one for constant sizes                   one, which compares the plans
//   known without a comparison           takes the program that this rank has planned   none
//
// Shapes are agreed once the last message is exchanged. If a rank fails before, all get its error, and nothing is kept: the next call with these
// shapes chooses as if the failed one had not been. A rank that fails later makes its program again in the next call, alone.
//
// After the first plan, ranks compare no plan while none has redistributed and no size may be assumed. The shapes of such calls are in a
// list that each rank has for itself: a rank whose call failed, or that made another call, has other shapes in its list. Nothing else is
// chosen from it, and it ends with the first plan that redistributes.
//
// Shapes are evicted in the order in which they were agreed, but first those of a program that has more than an eighth of the places: the shapes of
// one class do not evict other programs. Their use does not count: a call without messages is known to this rank alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "exec/planned_program.h"
#include "tensor/device_id.h"

namespace meshfuse {

struct ProgramChoice {
  std::shared_ptr<const PlannedProgram> program;  // null: it is planned, for `sizes`
  ShapeClass sizes;                               // of the call
  bool isNew = false;                             // its shapes are in no list
  std::string whyNotHere = {};  // why the stages of this rank do not hold for the class of `program`, if it has tried
  // Peers run `program` in this call, and exchange no message before.
  bool isAgreed() const { return program != nullptr && !isNew; }
};

class AgreedPrograms {
  static constexpr size_t kSharesOfPrograms = 8;

 public:
  // Of a call. Sizes: the global ones of the arguments, as globalSizes() gives them. Not what a rank knows them from: its shard, or a shape that
  // is given with it. The index of the device is not among them, since each rank has its own.
  struct Shapes {
    std::vector<std::vector<int64_t>> sizes;
    DeviceId::Kind device = DeviceId::Kind::Cpu;
    friend bool operator==(const Shapes&, const Shapes&) = default;
  };

  // most: shapes that are kept in each list.
  explicit AgreedPrograms(size_t most) : most_(most) {}

  // `wanted`: the class of the shapes. `values`: of the symbols of the fusion.
  [[nodiscard]] ProgramChoice choose(const Shapes& shapes, const ShapeClass& wanted, const SymbolValues& values) const;
  // The program that the ranks take for these shapes; null if they have not agreed on them.
  [[nodiscard]] std::shared_ptr<const PlannedProgram> find(const Shapes& shapes) const;
  // The ranks have agreed on this program for new shapes.
  void keep(const Shapes& shapes, std::shared_ptr<const PlannedProgram> program);
  // This rank has planned this program, for constant sizes, in a call in which no rank compares; nothing if it has done so before.
  void keepUncompared(const Shapes& shapes, std::shared_ptr<const PlannedProgram> program);
  [[nodiscard]] bool isUncompared(const Shapes& shapes) const;
  // Ranks compare all plans from now on: shapes that were not compared are new again.
  void forgetUncompared();
  // The shapes evicted since the last call of this function. Ranks exchange messages for them again, so their plans go too, also if this rank
  // has failed to compile the plan that it agreed on.
  [[nodiscard]] std::vector<Shapes> takeEvicted();

 private:
  struct Entry {
    Shapes shapes;
    std::shared_ptr<const PlannedProgram> program;
  };
  using Entries = std::deque<Entry>;  // the most recently kept one first

  static std::shared_ptr<const PlannedProgram> findIn(const Entries& entries, const Shapes& shapes);
  Entries::iterator firstToGo(Entries& entries) const;
  void keepIn(Entries& entries, const Shapes& shapes, std::shared_ptr<const PlannedProgram> program);

  const size_t most_;
  Entries agreed_;
  Entries uncompared_;
  std::vector<Shapes> evicted_;
};

}  // namespace meshfuse
