#include "host/in_place.h"

#include <algorithm>
#include <set>

#include "ir/fusion.h"
#include "schedule/coordinates.h"
#include "segment/elementwise.h"

namespace meshfuse {

namespace {

bool reads(const Segment& s, const Val* val) {
  return std::any_of(s.group.inputs.begin(), s.group.inputs.end(), [&](const TensorView* tv) { return tv == val; });
}

bool writes(const Segment& s, const Val* val) {
  return std::any_of(s.group.outputs.begin(), s.group.outputs.end(), [&](const TensorView* tv) { return tv == val; });
}

// The kernel reads `input` at no other element than the one of `output` it writes at the time.
bool readsOnlyWhatItWrites(const Segment& s, const TensorView* output, const TensorView* input) {
  if (s.kind != SegmentKind::Kernel ||
      !std::all_of(s.group.exprs.begin(), s.group.exprs.end(), [](const Expr* e) { return isElementwise(*e); })) {
    return false;
  }
  CoordinatesOrReason found = findCoordinates(s.group);
  if (!found.coordinates || found.coordinates->conflicted) {
    return false;
  }
  auto in = found.coordinates->index.find(input->id());
  auto out = found.coordinates->index.find(output->id());
  return in != found.coordinates->index.end() && out != found.coordinates->index.end() && in->second == out->second;
}

}  // namespace

std::map<int, int> arrangeInPlace(const Fusion& fusion, std::vector<Segment>& segments) {
  auto isLeafWriter = [&](const Segment& s) {
    bool aliased = std::any_of(fusion.aliases().begin(), fusion.aliases().end(),
                               [&](const auto& a) { return writes(s, a.first); });
    return aliased && std::all_of(s.group.outputs.begin(), s.group.outputs.end(), [&](const TensorView* out) {
             return std::none_of(segments.begin(), segments.end(),
                                 [&](const Segment& other) { return reads(other, out); });
           });
  };
  std::vector<bool> leaf;
  for (const Segment& s : segments) {
    leaf.push_back(isLeafWriter(s));
  }
  std::vector<Segment> ordered;
  for (bool wanted : {false, true}) {
    for (size_t i = 0; i < segments.size(); i++) {
      if (leaf[i] == wanted) {
        ordered.push_back(std::move(segments[i]));
      }
    }
  }
  segments = std::move(ordered);

  std::map<int, int> direct;
  std::set<int> taken;
  for (const auto& [output, input] : fusion.aliases()) {
    auto writer =
        std::find_if(segments.begin(), segments.end(), [&, out = output](const Segment& s) { return writes(s, out); });
    if (writer == segments.end() || (writer->kind != SegmentKind::Kernel && writer->kind != SegmentKind::Library) ||
        !taken.insert(input->id()).second) {
      continue;
    }
    bool readLater =
        std::any_of(writer + 1, segments.end(), [&, in = input](const Segment& s) { return reads(s, in); }) ||
        input->isFusionOutput();
    bool outputReadLater =
        std::any_of(segments.begin(), segments.end(), [&, out = output](const Segment& s) { return reads(s, out); });
    bool safe = !reads(*writer, input) || readsOnlyWhatItWrites(*writer, output->asTensor(), input->asTensor());
    if (!readLater && !outputReadLater && safe) {
      direct[output->id()] = input->id();
    }
  }
  return direct;
}

}  // namespace meshfuse
