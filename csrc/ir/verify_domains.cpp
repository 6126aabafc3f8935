#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "ir/verify.h"

namespace meshfuse {

namespace {

bool isPartOf(ParallelType type, const IntExpr& axis) {
  return axis.isConst() && axis.constValue() % type.pre() == 0 && axis.constValue() / type.pre() % type.size() == 0;
}

class DomainVerifier {
 public:
  DomainVerifier(const TensorView& t, std::vector<std::string>& violations) : t_(t), violations_(violations) {}

  void run() {
    checkUnique("root", t_.getRootDomain());
    checkUnique("logical", t_.getLogicalDomain());
    checkUnique("loop", t_.getLoopDomain());
    if (t_.hasRoot()) {
      checkRoot();
    }
    checkLoop();
    checkBindings();
    checkDims();
  }

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> message, Args&&... args) {
    violations_.push_back(static_cast<const Val&>(t_).toString() + ": " +
                          fmt::format(message, std::forward<Args>(args)...));
  }

  void checkUnique(const char* domain, const std::vector<IterDomain*>& ids) {
    std::set<int> seen;
    for (const IterDomain* id : ids) {
      if (!seen.insert(id->id()).second) {
        report("dim {} is listed twice in the {} domain", id->toString(), domain);
      }
    }
  }

  using ById = std::map<int, const IterDomain*>;

  static ById byId(const std::vector<IterDomain*>& ids) {
    ById all;
    for (const IterDomain* id : ids) {
      all.emplace(id->id(), id);
    }
    return all;
  }

  // Runs the transforms that lead to `to` forward from `from`, and returns the resulting dims.
  ById replay(const std::vector<IterDomain*>& from, const std::vector<IterDomain*>& to, const char* name) {
    ById present = byId(from);
    for (const IdExpr* step : transformsBetween(from, to)) {
      for (const IterDomain* in : step->in) {
        if (present.erase(in->id()) == 0) {
          report("{} dim {} is transformed twice, or is no dim of this tensor", name, in->toString());
        }
      }
      for (const IterDomain* out : step->out) {
        present.emplace(out->id(), out);
      }
      checkExtents(*step);
    }
    return present;
  }

  void checkExtents(const IdExpr& step) {
    IntExpr in = step.in[0]->extent();
    switch (step.kind) {
      case IdExprKind::Split: {
        IntExpr outer = step.innerSplit ? ceilDiv(in, step.factor) : step.factor;
        IntExpr inner = step.innerSplit ? step.factor : ceilDiv(in, step.factor);
        if (step.out[0]->extent() != outer || step.out[1]->extent() != inner) {
          report("the split of {} by {} gives {} and {}, expected {} and {}", step.in[0]->toString(),
                 step.factor.toString(), step.out[0]->toString(), step.out[1]->toString(), outer.toString(),
                 inner.toString());
        }
        return;
      }
      case IdExprKind::Partition: {
        const IntExpr together = sumOf(step.sizes);
        if (provenUnequal(together, in)) {
          report("the parts of {} have {} elements together; give the sizes of all parts", step.in[0]->toString(),
                 together.toString());
        }
        if (!step.out[0]->extent().isConst(std::ssize(step.sizes)) || step.out[1]->extent() != largestOf(step.sizes)) {
          report("the partition of {} in {} parts gives {} and {}", step.in[0]->toString(), step.sizes.size(),
                 step.out[0]->toString(), step.out[1]->toString());
        }
        return;
      }
      case IdExprKind::Merge:
        if (step.out[0]->extent() != in * step.in[1]->extent()) {
          report("the merge of {} and {} gives {}", step.in[0]->toString(), step.in[1]->toString(),
                 step.out[0]->toString());
        }
        return;
      case IdExprKind::Resize:
        if (step.out[0]->extent() != in + step.left + step.right) {
          report("the resize of {} by {} and {} gives {}", step.in[0]->toString(), step.left.toString(),
                 step.right.toString(), step.out[0]->toString());
        }
        return;
    }
  }

  void checkRoot() {
    const std::vector<IterDomain*>& root = t_.getRootDomain();
    const std::vector<IterDomain*>& logical = t_.getLogicalDomain();
    ById present = replay(root, logical, "root");
    bool awaitsSizes = false;
    for (const IterDomain* id : logical) {
      bool made = present.erase(id->id()) != 0;
      bool zero = id->extent().isConst(0);
      awaitsSizes |= !made && !id->isBroadcast() && !zero;
    }
    bool empty =
        std::any_of(logical.begin(), logical.end(), [](const IterDomain* id) { return id->extent().isConst(0); });
    ExprKind kind = t_.definition() == nullptr ? ExprKind::Set : t_.definition()->kind();
    if (awaitsSizes && kind != ExprKind::Reshape && !empty) {
      report("logical dims are not derived from the root domain; connect them by split, merge and resize");
    }
    // A stepped slice leaves the inner part of its splits, and dims of extent 1 may go; nothing else is lost.
    if (kind == ExprKind::Slice || awaitsSizes || empty) {
      return;
    }
    for (const auto& [id, lost] : present) {
      if (!lost->extent().isConst(1)) {
        report("{} of the root domain is in no logical dim", lost->toString());
      }
    }
  }

  void checkLoop() {
    const ById present = replay(t_.getLogicalDomain(), t_.getLoopDomain(), "logical");
    const ById loop = byId(t_.getLoopDomain());
    if (present != loop) {
      report("the loop domain is not the logical domain split and merged: {} dims where {} are expected", loop.size(),
             present.size());
    }
  }

  static std::string nameOf(ParallelType type, const DeviceMesh& mesh) {
    return type.axisFromLast() < mesh.numAxes()
               ? fmt::format("{}, axis {} of {},", type.toString(), mesh.axisName(mesh.axisOf(type)), mesh.toString())
               : type.toString();
  }

  // Axes of a mesh or parts of them, as they are bound and named.
  static std::string namesOf(const DeviceMesh& mesh, const std::vector<ParallelType>& types) {
    std::string text;
    for (const ParallelType type : types) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", type.toString(), mesh.axisName(mesh.axisOf(type)));
    }
    return text;
  }
  static std::string axesOf(const DeviceMesh& mesh) {
    std::vector<ParallelType> types;
    for (int axis = 0; axis < mesh.numAxes(); axis++) {
      types.push_back(mesh.typeOf(axis));
    }
    return namesOf(mesh, types);
  }
  // The free parallel types to which a loop dim could be bound instead.
  std::string freeInstead(const DeviceMesh& mesh, ParallelType a, ParallelType b) const {
    std::vector<ParallelType> bound;
    for (const IterDomain* id : t_.getLoopDomain()) {
      if (id->isDeviceDim()) {
        bound.push_back(id->parallelType());
      }
    }
    return namesOf(mesh, mesh.freeInstead(a, b, std::move(bound)));
  }

  void checkBindings() {
    std::vector<size_t> bound;  // loop dims that are bound to axes
    int streams = 0;
    for (size_t k = 0; k < t_.getLoopDomain().size(); k++) {
      const IterDomain* id = t_.getLoopDomain()[k];
      ParallelType type = id->parallelType();
      streams += type == ParallelType::Stream ? 1 : 0;
      if (!type.isDevice()) {
        continue;
      }
      const DeviceMesh& mesh = t_.getDeviceMesh();
      const auto first = std::ranges::find_if(bound, [&](size_t other) {
        const IterDomain* there = t_.getLoopDomain()[other];
        return there->isReduction() == id->isReduction() && mesh.overlap(there->parallelType(), type);
      });
      if (first != bound.end()) {
        const std::string free = freeInstead(mesh, t_.getLoopDomain()[*first]->parallelType(), type);
        report(
            "{} is bound to two loop dims, {} and {}; an axis owns one digit of a tensor: leave one of them serial, {}",
            nameOf(type, mesh), *first, k,
            free.empty() ? "or give the mesh one more axis" : "or bind it to one that is free: " + free);
      }
      bound.push_back(k);
      if (mesh.empty()) {
        report("loop dim {} is bound to {}, but the tensor has no mesh; call setDeviceMesh", k, type.toString());
      } else if (type.axisFromLast() >= mesh.numAxes()) {
        report("loop dim {} is bound to {}, but mesh {} has {} axes; bind it to one of {}", k, type.toString(),
               mesh.toString(), mesh.numAxes(), axesOf(mesh));
      } else if (type.isPart() && !isPartOf(type, mesh.axisSize(mesh.axisOf(type)))) {
        report("loop dim {} is bound to {}, which is no part of an axis of {}; give factors of its size", k,
               type.toString(), mesh.axisSize(mesh.axisOf(type)).toString());
      } else if (provenUnequal(id->extent(), mesh.size(type))) {
        report("loop dim {} is bound to a mesh axis of {} devices; split by the size of the axis", id->toString(),
               mesh.size(type).toString());
      }
    }
    if (streams > 1) {
      report("{} loop dims are bound to Stream; bind one", streams);
    }
    for (const auto* domain : {&t_.getRootDomain(), &t_.getLogicalDomain()}) {
      for (IterDomain* id : *domain) {
        const std::vector<IterDomain*>& loop = t_.getLoopDomain();
        if (id->parallelType() != ParallelType::Serial && std::find(loop.begin(), loop.end(), id) == loop.end()) {
          report("dim {} is bound but is no loop dim", id->toString());
        }
      }
    }
  }

  void checkDims() {
    for (const IterDomain* id : t_.getLogicalDomain()) {
      if (id->isBroadcast() && provenUnequal(id->extent(), 1)) {
        report("broadcast dim {} has an extent other than 1", id->toString());
      }
      if (id->extent().upper() && *id->extent().upper() < 0) {
        report("dim {} has a negative extent", id->toString());
      }
      if (id->isReduction() && t_.definition() == nullptr) {
        report("dim {} is a reduction, but nothing computes the tensor", id->toString());
      }
    }
    size_t stored = t_.noReductions().size();
    if (t_.contiguity().size() != stored) {
      report("{} contiguity flags for {} stored dims", t_.contiguity().size(), stored);
    }
    if (t_.getAllocationDomain().size() != stored) {
      report("the allocation domain has {} dims, the stored shape {}", t_.getAllocationDomain().size(), stored);
    }
  }

  const TensorView& t_;
  std::vector<std::string>& violations_;
};

}  // namespace

void verifyDomains(const TensorView& tensor, std::vector<std::string>& violations) {
  DomainVerifier(tensor, violations).run();
}

}  // namespace meshfuse
