#include "ir/verify.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/exact.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"

namespace meshfuse {

namespace {

bool isPartOf(ParallelType type, const IntExpr& axis) {
  return axis.isConst() && axis.constValue() % type.pre() == 0 && axis.constValue() / type.pre() % type.size() == 0;
}

class DomainVerifier : Verifier {
 public:
  DomainVerifier(const TensorView& t, std::vector<std::string>& violations) : Verifier(t, violations), t_(t) {}

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
  void checkUnique(const char* domain, const std::vector<IterDomain*>& ids) {
    std::set<const IterDomain*> seen;  // of a domain with so many dims that a search is slower
    const bool isLong = std::ssize(ids) > kMostDims;
    for (auto id = ids.begin(); id != ids.end(); ++id) {
      require(isLong ? seen.insert(*id).second : std::find(ids.begin(), id, *id) == id,
              "dim {} is listed twice in the {} domain", *id, domain);
    }
  }

  using ById = std::map<int64_t, const IterDomain*>;

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
        require(present.erase(in->id()) > 0, "{} dim {} is transformed twice, or is no dim of this tensor", name, in);
      }
      for (const IterDomain* out : step->out) {
        present.emplace(out->id(), out);
      }
      checkExtents(*step);
    }
    return present;
  }

  void checkExtents(const IdExpr& step) {
    const auto& [kind, in, out, factor, innerSplit, left, right, sizes] = step;
    const IntExpr& extent = in[0]->extent();
    switch (kind) {
      case IdExprKind::Split: {
        const IntExpr other = ceilDiv(extent, factor);
        const IntExpr& outer = innerSplit ? other : factor;
        const IntExpr& inner = innerSplit ? factor : other;
        require(out[0]->extent() == outer && out[1]->extent() == inner,
                "the split of {} by {} gives {} and {}, expected {} and {}", in[0], factor, out[0], out[1], outer,
                inner);
        return;
      }
      case IdExprKind::Partition: {
        const IntExpr together = sumOf(sizes);
        require(!provenUnequal(together, extent),
                "the parts of {} have {} elements together; give the sizes of all parts", in[0], together);
        require(out[0]->extent().isConst(std::ssize(sizes)) && out[1]->extent() == largestOf(sizes),
                "the partition of {} in {} parts gives {} and {}, expected {} and {}", in[0], sizes.size(), out[0],
                out[1], sizes.size(), largestOf(sizes));
        return;
      }
      case IdExprKind::Merge:
        require(out[0]->extent() == extent * in[1]->extent(), "the merge of {} and {} gives {}, expected {}", in[0],
                in[1], out[0], extent * in[1]->extent());
        return;
      case IdExprKind::Resize:
        require(out[0]->extent() == extent + left + right, "the resize of {} by {} and {} gives {}, expected {}", in[0],
                left, right, out[0], extent + left + right);
        return;
    }
  }

  void checkRoot() {
    const std::vector<IterDomain*>& root = t_.getRootDomain();
    const std::vector<IterDomain*>& logical = t_.getLogicalDomain();
    ById present = replay(root, logical, "root");
    bool awaitsSizes = false;
    bool empty = false;
    for (const IterDomain* id : logical) {
      const bool made = present.erase(id->id()) != 0;
      const bool zero = id->extent().isConst(0);
      awaitsSizes |= !made && !id->isBroadcast() && !zero;
      empty |= zero;
    }
    const ExprKind kind = t_.definition() == nullptr ? ExprKind::Set : t_.definition()->kind();
    require(!awaitsSizes || kind == ExprKind::Reshape || empty,
            "logical dims are not derived from the root domain; connect them by split, merge and resize");
    // A stepped slice leaves the inner part of its splits, and dims of extent 1 may go, of a reshape also those that a call must give
    // this size; nothing else is lost.
    if (kind == ExprKind::Slice || awaitsSizes || empty) {
      return;
    }
    for (const auto& [id, lost] : present) {
      const bool mayBeOne = kind == ExprKind::Reshape && !provenUnequal(lost->extent(), 1);
      require(lost->extent().isConst(1) || mayBeOne, "{} of the root domain is in no logical dim", lost);
    }
  }

  void checkLoop() {
    const ById present = replay(t_.getLogicalDomain(), t_.getLoopDomain(), "logical");
    const ById loop = byId(t_.getLoopDomain());
    require(present == loop,
            "the loop domain is not the logical domain split and merged: {} dims where {} are expected", loop.size(),
            present.size());
  }

  static std::string nameOf(ParallelType type, const DeviceMesh& mesh) {
    return type.axisFromLast() < mesh.numAxes()
               ? fmt::format("{}, axis {} of {},", type.toString(), mesh.axisName(mesh.axisOf(type)), mesh.toString())
               : type.toString();
  }

  // Axes of a mesh or parts of them, as they are bound and named.
  static std::string namesOf(const DeviceMesh& mesh, const std::vector<ParallelType>& types) {
    return joined(types, ", ", [&](ParallelType type) {
      return fmt::format("{} ({})", type.toString(), mesh.axisName(mesh.axisOf(type)));
    });
  }
  static std::string axesOf(const DeviceMesh& mesh) {
    const auto typeOf = [&](int64_t axis) { return mesh.typeOf(axis); };
    return namesOf(mesh, mapped(std::views::iota(int64_t{0}, mesh.numAxes()), typeOf));
  }
  // The free parallel types to which a loop dim could be bound instead.
  std::string freeInstead(const DeviceMesh& mesh, ParallelType a, ParallelType b) const {
    auto bound = std::views::filter(t_.getLoopDomain(), &IterDomain::isDeviceDim);
    return namesOf(mesh, mesh.freeInstead(a, b, mapped(bound, &IterDomain::parallelType)));
  }

  void checkBindings() {
    const std::vector<IterDomain*>& loop = t_.getLoopDomain();
    std::vector<size_t> bound;  // loop dims that are bound to axes
    int64_t streams = 0;
    for (int64_t k = 0; k < std::ssize(loop); k++) {
      const IterDomain* id = loop[k];
      ParallelType type = id->parallelType();
      streams += type == ParallelType::Stream ? 1 : 0;
      if (!type.isDevice()) {
        continue;
      }
      const DeviceMesh& mesh = t_.getDeviceMesh();
      const auto first = std::ranges::find_if(bound, [&](size_t other) {
        const IterDomain* there = loop[other];
        return there->isReduction() == id->isReduction() && mesh.overlap(there->parallelType(), type);
      });
      if (first != bound.end()) {
        const std::string free = freeInstead(mesh, loop[*first]->parallelType(), type);
        report(
            "{} is bound to two loop dims, {} and {}; an axis owns one digit of a tensor: leave one of them serial, {}",
            nameOf(type, mesh), *first, k,
            free.empty() ? "or give the mesh one more axis" : "or bind it to one that is free: " + free);
      }
      bound.push_back(k);
      if (mesh.empty()) {
        report("loop dim {} is bound to {}, but the tensor has no mesh; call setDeviceMesh", k, type);
      } else if (type.axisFromLast() >= mesh.numAxes()) {
        report("loop dim {} is bound to {}, but mesh {} has {} axes; bind it to one of {}", k, type, mesh,
               mesh.numAxes(), axesOf(mesh));
      } else if (type.isPart() && !isPartOf(type, mesh.axisSize(mesh.axisOf(type)))) {
        report("loop dim {} is bound to {}, which is no part of an axis of {}; give factors of its size", k, type,
               mesh.axisSize(mesh.axisOf(type)));
      } else {
        require(!provenUnequal(id->extent(), mesh.size(type)),
                "loop dim {} is bound to a mesh axis of {} devices; split by the size of the axis", id,
                mesh.size(type));
      }
    }
    require(streams <= 1, "{} loop dims are bound to Stream; bind one", streams);
    for (const auto* domain : {&t_.getRootDomain(), &t_.getLogicalDomain()}) {
      for (const IterDomain* id : *domain) {
        require(id->parallelType() == ParallelType::Serial || contains(loop, id), "dim {} is bound but is no loop dim",
                id);
      }
    }
  }

  void checkDims() {
    for (const IterDomain* id : t_.getLogicalDomain()) {
      require(!id->isBroadcast() || !provenUnequal(id->extent(), 1), "broadcast dim {} has an extent other than 1", id);
      require(id->extent().upper().value_or(0) >= 0, "dim {} has a negative extent", id);
      require(!id->isReduction() || t_.definition() != nullptr,
              "dim {} is a reduction, but nothing computes the tensor", id);
    }
    require(std::ssize(t_.getLogicalDomain()) <= kMostDims, "{} dims, expected at most {}; merge some with reshape",
            t_.getLogicalDomain().size(), kMostDims);
    checkBytes();
    const size_t stored = t_.noReductions().size();
    const size_t allocated = t_.getAllocationDomain().size();
    require(t_.contiguity().size() == stored, "{} contiguity flags for {} stored dims", t_.contiguity().size(), stored);
    require(allocated == stored, "the allocation domain has {} dims, the stored shape {}", allocated, stored);
  }

  // Of constant extents; those of 0 count as 1, so that the product of no dims, and so no stride, is larger.
  void checkBytes() {
    std::optional<int64_t> bytes = dataTypeSize(t_.dtype());
    for (const IntExpr& extent : t_.shape()) {
      const int64_t least = std::max<int64_t>(extent.isConst() ? extent.constValue() : 1, 1);
      bytes = bytes ? multipliedIfExact(*bytes, least) : std::nullopt;
    }
    require(bytes && *bytes <= kMostTensorBytes, "extents {} of {} are more than 2^50 bytes; use smaller extents",
            t_.shape(), name(t_.dtype()));
  }

  const TensorView& t_;
};

}  // namespace

void verifyDomains(const TensorView& tensor, std::vector<std::string>& violations) {
  DomainVerifier(tensor, violations).run();
}

}  // namespace meshfuse
