#include "segment/judge_siblings.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "ir/fusion.h"
#include "schedule/extents.h"
#include "schedule/rows.h"
#include "segment/elementwise.h"

namespace meshfuse {

namespace {

// Of kMaxStreams, where they are in no cache: beyond that number prefetchers and write buffers lose track.
constexpr size_t kMaxMemoryStreams = 16;
// What moves in the time of a few launches: a launch less is nothing to larger kernels, and two loops in one are no faster.
constexpr int64_t kLaunchBytesCpu = 1 << 20;
constexpr int64_t kLaunchBytesGpu = 16 << 20;
// Registers of a thread that rows may take on a GPU, of 255.
constexpr int64_t kRowRegisters = 128;

int64_t elementsOf(const TensorView* tv) {
  int64_t n = 1;
  for (const IntExpr& e : tv->shape()) {
    n *= usualExtent(e);
  }
  return n;
}

int64_t bytesOf(const TensorView* tv) { return elementsOf(tv) * dataTypeSize(tv->dtype()); }

bool contains(const std::vector<TensorView*>& list, const Val* tv) {
  return std::any_of(list.begin(), list.end(), [&](const TensorView* x) { return x == tv; });
}

int64_t elementsOf(const GroupLoops& l) {
  return usualExtent(l.axes.M) * usualExtent(l.axes.K) * usualExtent(l.axes.N);
}

int64_t rowElements(const GroupLoops& l) {
  return (l.axes.innerReduced ? usualExtent(l.axes.N) : 1) * usualExtent(l.axes.K);
}

// A row is read by more than one sweep.
bool keepsRows(const GroupLoops& l) { return l.coordinates.rounds > 1 || l.coordinates.lateOutputs; }

bool isSerial(const std::vector<tile::Builder::DigitSpec>& axis) {
  return std::any_of(axis.begin(), axis.end(), [](const auto& d) { return d.level == tile::Level::Serial; });
}

bool rowsInRegisters(const GroupLoops& l) {
  return l.coordinates.hasReduction() && !isSerial(l.digits.n) && !isSerial(l.digits.k);
}

// Inputs that a row has elements of.
int64_t rowInputs(const GroupLoops& l) {
  return std::count_if(l.group.inputs.begin(), l.group.inputs.end(), [&](const TensorView* in) {
    return l.coordinates.isSpread(in) && elementsOf(in) > rowElements(l);
  });
}

int64_t rowBytes(const GroupLoops& l) {
  int64_t bytes = 0;
  for (const TensorView* in : l.group.inputs) {
    bytes += l.coordinates.isSpread(in) ? rowElements(l) * dataTypeSize(in->dtype()) : 0;
  }
  return bytes;
}

int64_t elementsPerThread(const GroupLoops& l) {
  int64_t n = 1;
  for (const tile::Builder::DigitSpec& d : l.digits.n) {
    n *= d.level == tile::Level::Repeat || d.level == tile::Level::Vector ? d.size.constValue() : 1;
  }
  return n;
}

IntExpr partsOf(const GroupLoops& l) {
  IntExpr n = 1;
  for (const tile::GridDim& g : l.digits.grid) {
    n *= g.count;
  }
  return n;
}

// The same extents are looped over, in any order: a transposed result may be the reference of one of them.
bool loopAlike(const GroupLoops& a, const GroupLoops& b) {
  auto extents = [](const GroupLoops& l) {
    std::multiset<std::string> result;
    for (const IntExpr& e : l.coordinates.extents) {
      if (!e.isConst(1)) {
        result.insert(e.toString());
      }
    }
    return result;
  };
  return extents(a) == extents(b);
}

// The largest input that both read, if it is as large as what one of them loops over.
const TensorView* sharedInput(const GroupLoops& a, const GroupLoops& b) {
  const TensorView* best = nullptr;
  for (const TensorView* in : a.group.inputs) {
    if (contains(b.group.inputs, in) && elementsOf(in) >= std::min(elementsOf(a), elementsOf(b)) &&
        (best == nullptr || bytesOf(in) > bytesOf(best))) {
      best = in;
    }
  }
  return best;
}

std::optional<std::string> losesStructure(const GroupLoops& part, const GroupLoops& joint) {
  if (!part.digits.split.empty() && joint.digits.split.empty()) {
    return "its reduction would not be split any more";
  }
  if (part.digits.scratchRow && !joint.digits.scratchRow) {
    return "its columns would be summed in narrow strips, not in whole rows";
  }
  if (part.digits.pipelineRows > 0 && joint.digits.pipelineRows == 0) {
    return "its rows would not be software pipelined any more";
  }
  if (rowsInRegisters(part) && keepsRows(part) && !rowsInRegisters(joint)) {
    return "its rows would not stay in registers any more";
  }
  const IntExpr parts = partsOf(part);
  const IntExpr jointParts = partsOf(joint);
  if (parts.isConst() && jointParts.isConst() && parts.constValue() > 2 * jointParts.constValue()) {
    return fmt::format("it has {} parallel parts, together they have {}", parts.constValue(), jointParts.constValue());
  }
  return std::nullopt;
}

// The innermost elements of a tensor are neighbours along the vector axis.
bool runsAlong(const GroupLoops& l, const TensorView* tv) {
  auto index = l.coordinates.index.find(tv->id());
  const std::vector<IntExpr> shape = tv->shape();
  for (size_t d = shape.size(); index != l.coordinates.index.end() && !l.axes.n.empty() && d-- > 0;) {
    if (!shape[d].isConst(1)) {
      return index->second[d].contains(fmt::format("d{}", l.axes.n.back()));
    }
  }
  return false;
}

std::optional<std::string> crossesRows(const GroupLoops& part, const GroupLoops& joint) {
  for (const auto* list : {&part.group.inputs, &part.group.outputs}) {
    for (const TensorView* tv : *list) {
      if (runsAlong(part, tv) && !runsAlong(joint, tv)) {
        return fmt::format("{} would be accessed across its rows", tv->toString());
      }
    }
  }
  return std::nullopt;
}

int64_t bytesMoved(const GroupLoops& l) {
  int64_t bytes = 0;
  for (const auto* list : {&l.group.inputs, &l.group.outputs}) {
    for (const TensorView* tv : *list) {
      bytes += bytesOf(tv);
    }
  }
  return bytes;
}

std::optional<std::string> lacksRoom(const GroupLoops& a, const GroupLoops& b, const GroupLoops& joint,
                                     const DeviceInfo& device) {
  size_t streams = 0;
  for (const auto* list : {&joint.group.inputs, &joint.group.outputs}) {
    streams += static_cast<size_t>(std::count_if(
        list->begin(), list->end(), [&](const TensorView* tv) { return elementsOf(tv) * 8 >= elementsOf(joint); }));
  }
  const int64_t cached = device.target == tile::Target::Cpu ? device.l2Bytes : device.lastCacheBytes / 4;
  const size_t most = bytesMoved(joint) <= cached ? kMaxStreams : kMaxMemoryStreams;
  if (streams > most) {
    return fmt::format("{} tensors are more than one loop runs over, {}", streams, most);
  }
  if (!keepsRows(joint)) {
    return std::nullopt;
  }
  if (device.target == tile::Target::Cpu) {
    const int64_t room = device.l2Bytes / 2;
    if (rowBytes(joint) > room && rowBytes(a) <= room && rowBytes(b) <= room) {
      return fmt::format("a row of both, {} bytes, does not stay in the cache", rowBytes(joint));
    }
    return std::nullopt;
  }
  const int64_t held = elementsPerThread(joint) * rowInputs(joint);
  if (rowsInRegisters(joint) && held > kRowRegisters && rowInputs(joint) > std::max(rowInputs(a), rowInputs(b))) {
    return fmt::format("rows of both take {} registers of a thread, at most {} are for them", held, kRowRegisters);
  }
  return std::nullopt;
}

// An update in place needs a kernel that is elementwise and last of all, and reads the input nowhere else.
std::optional<std::string> losesPlace(const Group& updates, const Group& other) {
  for (const auto& [output, input] : updates.fusion->aliases()) {
    if (!contains(updates.outputs, output)) {
      continue;
    }
    const bool leaf = std::all_of(other.outputs.begin(), other.outputs.end(),
                                  [&](const TensorView* out) { return updates.fusion->uses(out).empty(); });
    const bool elementwise =
        std::all_of(other.exprs.begin(), other.exprs.end(), [](const Expr* e) { return isElementwise(*e); });
    if (!leaf || !elementwise || contains(other.inputs, input)) {
      return fmt::format("{} could not be updated in place any more", input->toString());
    }
  }
  return std::nullopt;
}

}  // namespace

GroupLoops::GroupLoops(Group g, Coordinates c, const DeviceInfo& device)
    : group(std::move(g)), coordinates(std::move(c)), axes(axesChoices(coordinates)[0]) {
  digits = device.target == tile::Target::Cpu ? cpuDigits(group, coordinates, axes, device)
                                              : gpuDigits(group, coordinates, axes, device);
}

SiblingJudgement judgeSiblings(const GroupLoops& a, const GroupLoops& b, const GroupLoops& joint,
                               const DeviceInfo& device) {
  SiblingJudgement result;
  const TensorView* shared = sharedInput(a, b);
  if (shared == nullptr && (!loopAlike(a, joint) || !loopAlike(b, joint))) {
    result.refusal = "they loop over other extents and share no large input";
    return result;
  }
  const int64_t least = device.target == tile::Target::Cpu ? kLaunchBytesCpu : kLaunchBytesGpu;
  if (shared == nullptr && bytesMoved(joint) > least) {
    result.refusal = "they share no large input, and move so much that a launch less is nothing";
    return result;
  }
  result.gain = shared != nullptr ? fmt::format("both read {}", shared->toString()) : "same loop, one launch less";
  result.refusal = losesStructure(a, joint);
  result.refusal = result.refusal ? result.refusal : losesStructure(b, joint);
  result.refusal = result.refusal ? result.refusal : crossesRows(a, joint);
  result.refusal = result.refusal ? result.refusal : crossesRows(b, joint);
  result.refusal = result.refusal ? result.refusal : lacksRoom(a, b, joint, device);
  result.refusal = result.refusal ? result.refusal : losesPlace(a.group, b.group);
  result.refusal = result.refusal ? result.refusal : losesPlace(b.group, a.group);
  return result;
}

}  // namespace meshfuse
