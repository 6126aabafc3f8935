// The steps of a plan as collectives on contiguous shapes, with packs and unpacks.
#include <algorithm>

#include "base/error.h"
#include "preseg_passes/local_layout.h"

namespace meshfuse {

namespace {

TensorView* communicate(TensorView* in, const CommStep& step, CommKind kind, const std::vector<int64_t>& shape,
                        ReduceOp reduce) {
  Fusion& fusion = in->fusion();
  std::vector<Dim> dims;
  for (int64_t n : shape) {
    dims.push_back(localDim(n, IterType::Iteration));
  }
  TensorView* out = fusion.tensor(in->dtype(), dims);
  ExprAttributes attributes;
  attributes.comm.kind = kind;
  attributes.comm.mesh = fusion.meshNumber(step.mesh);
  attributes.comm.axes = step.axes;
  attributes.comm.reduce = reduce;
  attributes.comm.sources = step.sources;
  fusion.addExpr(ExprKind::Communicate, {in}, {out}, attributes);
  return out;
}

enum class Role : uint8_t { Local, Old, New };

// A piece of a dim that takes part: local, owned by the team before, or owned by it after.
struct Piece {
  Role role;
  int64_t size;
  int atom;
};

// The digits of a dim, local ones cut where the team owns something after; digits of others are left out.
std::vector<Piece> piecesOf(const PlanDim& before, const PlanDim& after, const std::vector<int>& team) {
  const auto inTeam = [&](int atom) { return std::find(team.begin(), team.end(), atom) != team.end(); };
  std::vector<Piece> pieces;
  for (const PlanDigit& d : before) {
    if (d.atom != kLocal) {
      if (inTeam(d.atom)) {
        pieces.push_back({Role::Old, d.size, d.atom});
      }
      continue;
    }
    int64_t top = d.stride * d.size;
    for (const PlanDigit& n : after) {
      if (n.atom != kLocal && inTeam(n.atom) && n.stride >= d.stride && n.stride * n.size <= d.stride * d.size) {
        pieces.push_back({Role::Local, top / (n.stride * n.size), kLocal});
        pieces.push_back({Role::New, n.size, n.atom});
        top = n.stride;
      }
    }
    pieces.push_back({Role::Local, top / d.stride, kLocal});
  }
  return pieces;
}

// All pieces of all dims in order.
std::vector<Piece> allPieces(const CommStep& step) {
  std::vector<Piece> all;
  for (size_t k = 0; k < step.before.dims.size(); k++) {
    for (const Piece& p : piecesOf(step.before.dims[k], step.after.dims[k], step.axes)) {
      all.push_back(p);
    }
  }
  return all;
}

int64_t teamSize(const CommStep& step) {
  int64_t n = 1;
  for (int axis : step.axes) {
    n *= step.mesh.axisSize(axis).constValue();
  }
  return n;
}

// [dims..] -> [team, the rest..]: the digits that the team will own come to the front, in its order.
TensorView* pack(TensorView* in, const CommStep& step, const std::vector<int64_t>& rest) {
  std::vector<int64_t> sizes;
  std::vector<Piece> pieces;
  for (const Piece& p : allPieces(step)) {
    if (p.role != Role::Old) {
      pieces.push_back(p);
      sizes.push_back(p.size);
    }
  }
  std::vector<int> order;
  for (int atom : step.axes) {
    for (size_t i = 0; i < pieces.size(); i++) {
      if (pieces[i].role == Role::New && pieces[i].atom == atom) {
        order.push_back(static_cast<int>(i));
      }
    }
  }
  for (size_t i = 0; i < pieces.size(); i++) {
    if (pieces[i].role == Role::Local) {
      order.push_back(static_cast<int>(i));
    }
  }
  std::vector<int64_t> shape{teamSize(step)};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return rearrange(in, sizes, order, shape);
}

// [team, the rest..] -> [dims..]: the digits that the team owned go to their places.
TensorView* unpack(TensorView* in, const CommStep& step) {
  std::vector<int64_t> sizes;
  for (int atom : step.axes) {
    sizes.push_back(step.mesh.axisSize(atom).constValue());
  }
  std::vector<int> order;
  std::vector<Piece> pieces = allPieces(step);
  for (const Piece& p : pieces) {
    if (p.role == Role::Local) {
      order.push_back(static_cast<int>(sizes.size()));
      sizes.push_back(p.size);
    } else if (p.role == Role::Old) {
      order.push_back(static_cast<int>(std::find(step.axes.begin(), step.axes.end(), p.atom) - step.axes.begin()));
    }
  }
  return rearrange(in, sizes, order, localShape(step.after));
}

}  // namespace

TensorView* emitStep(TensorView* in, const CommStep& step, ReduceOp reduce) {
  const std::vector<int64_t> before = localShape(step.before);
  const std::vector<int64_t> after = localShape(step.after);
  invariant(in->constantShape() == before, "[localize] {} enters {} with another shape than planned", in->toString(),
            step.toString());
  switch (step.kind) {
    case StepKind::Slice: {
      std::vector<IntExpr> coordinates;
      for (size_t a = 0; a < step.origins.size(); a++) {
        coordinates.push_back(
            coordinate(step.tensorMesh, step.origins[a], step.mesh.axisSize(static_cast<int>(a)).constValue()));
      }
      return sliceOwned(in, step.before, step.after, coordinates);
    }
    case StepKind::AllReduce:
      return communicate(in, step, CommKind::AllReduce, before, reduce);
    case StepKind::Permute:
      return communicate(in, step, CommKind::Permute, after, reduce);
    case StepKind::AllGather: {
      std::vector<int64_t> shape{teamSize(step)};
      shape.insert(shape.end(), before.begin(), before.end());
      return unpack(communicate(in, step, CommKind::AllGather, shape, reduce), step);
    }
    case StepKind::ReduceScatter:
      return communicate(pack(in, step, after), step, CommKind::ReduceScatter, after, reduce);
    case StepKind::AllToAll: {
      // What is left of each dim when the digits of both sides are taken out.
      std::vector<int64_t> rest;
      for (size_t k = 0; k < before.size(); k++) {
        int64_t n = before[k];
        for (const Piece& p : piecesOf(step.before.dims[k], step.after.dims[k], step.axes)) {
          n /= p.role == Role::New ? p.size : 1;
        }
        rest.push_back(n);
      }
      std::vector<int64_t> shape{teamSize(step)};
      shape.insert(shape.end(), rest.begin(), rest.end());
      return unpack(communicate(pack(in, step, rest), step, CommKind::AllToAll, shape, reduce), step);
    }
    default:
      break;
  }
  throwInternalError(
      fmt::format("[localize] no program for {}: the plan took a step that is not executed", step.toString()));
}

}  // namespace meshfuse
