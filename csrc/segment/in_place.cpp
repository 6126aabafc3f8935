#include "segment/in_place.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

bool reads(const Segment& s, const Val* val) { return contains(s.group.inputs, val); }
bool writes(const Segment& s, const Val* val) { return contains(s.group.outputs, val); }

// Tensors of the same sizes without a layout of their own are both row-major.
bool lieAlike(const TensorView* a, const TensorView* b, const std::map<int64_t, Layout>& layouts) {
  const auto isRowMajor = [&](const TensorView* tv) { return !layouts.contains(tv->id()); };
  return (isRowMajor(a) && isRowMajor(b)) || layoutOf(a, layouts).strides == layoutOf(b, layouts).strides;
}

}  // namespace

void arrangeInPlace(const Fusion& fusion, const LocalContext& context, std::vector<Segment>& segments) {
  std::set<const Val*> read;
  for (const Segment& s : segments) {
    read.insert(s.group.inputs.begin(), s.group.inputs.end());
  }
  std::ranges::stable_partition(segments, [&](const Segment& s) {
    const bool aliased = std::ranges::any_of(fusion.aliases(), [&](const auto& a) { return writes(s, a.first); });
    return !aliased || std::ranges::any_of(s.group.outputs, [&](const TensorView* out) { return read.contains(out); });
  });
  std::set<int64_t> taken;
  for (const auto& [output, input] : fusion.aliases()) {
    const auto writer = std::ranges::find_if(segments, [&, out = output](const Segment& s) { return writes(s, out); });
    if (writer == segments.end() || writer->judgement == nullptr || !taken.insert(input->id()).second) {
      continue;
    }
    bool readLater =
        std::any_of(writer + 1, segments.end(), [&, in = input](const Segment& s) { return reads(s, in); }) ||
        input->isFusionOutput();
    const TensorView* made = output->asTensor();
    const TensorView* place = input->asTensor();
    const Judgement& judgement = *writer->judgement;
    const bool isRead = reads(*writer, input);
    const bool fits = (!isRead || judgement.readsWhereItWrites(made, place)) &&
                      (judgement.writesAnyLayout || lieAlike(made, place, context.layouts));
    if (readLater || read.contains(output) || !fits) {
      continue;
    }
    writer->inPlace[made->id()] = place->id();
    if (isRead) {
      writer->group.aliases[made->id()] = place->id();
    }
    if (const auto layout = context.layouts.find(place->id()); layout != context.layouts.end()) {
      writer->group.layouts[made->id()] = layout->second;
    }
  }
}

}  // namespace meshfuse
