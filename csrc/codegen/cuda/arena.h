// The shared memory of a kernel: named slots, and as few barriers as the order of accesses needs.
//
// A slot may be written if no thread has accessed it since the last barrier. Other threads may read it only after a barrier
// that follows the write. With two slots in turn a reduction needs one barrier: while one slot is read, the next is written.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse::cuda {

class Arena {
 public:
  struct Slot {
    std::string name;  // a constant of the kernel: its offset in bytes
    IntExpr bytes;
  };

  // The accesses since the last barrier.
  struct Open {
    std::set<std::string> read;
    std::set<std::string> written;
    std::set<std::string> remote;  // read by other blocks, since the last barrier of the cluster

    void merge(const Open& other) {
      read.insert(other.read.begin(), other.read.end());
      written.insert(other.written.begin(), other.written.end());
      remote.insert(other.remote.begin(), other.remote.end());
    }
    bool contains(const Open& other) const {
      return std::ranges::includes(read, other.read) && std::ranges::includes(written, other.written) &&
             std::ranges::includes(remote, other.remote);
    }
  };

  // The slot of that name, as large as its largest use.
  void reserve(const std::string& name, const IntExpr& bytes);
  // One of two slots of a family, preferably one that needs no barrier before it is written.
  std::string alternate(const std::string& family, const IntExpr& bytes);

  enum class Wait { None, Block, Cluster };
  Wait beforeWrite(const std::string& slot) const;
  Wait beforeRead(const std::string& slot) const { return open.written.contains(slot) ? Wait::Block : Wait::None; }
  void passed(Wait barrier);

  const std::vector<Slot>& slots() const { return slots_; }
  Open open;

 private:
  std::vector<Slot> slots_;
};

}  // namespace meshfuse::cuda
