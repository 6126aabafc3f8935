// The three algorithms of collectives: slots, pull and staged.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/host/host_communicator.h"
#include "multidevice/transport/reduce.h"
#include "multidevice/transport/stream_copy.h"

namespace meshfuse {

namespace {

constexpr int64_t kPieceMultiple = 64;  // elements: parts of whole pieces start at a cache line

// Null if the call has no such buffer on this rank: no element is read or written there.
template <class Byte>
Byte* placeIn(Byte* buffer, int64_t offset) {
  return buffer == nullptr ? nullptr : buffer + offset;
}

}  // namespace

int64_t HostCommunicator::carry(const HostCall& c) {
  const SizeClass size = sizeClass(c.largestInput(), std::min<int64_t>(options_.thresholds.slots, kSlotBytes));
  const Algorithm algorithm = algorithms_.onHost(c.record.kind, size);
  const bool inSlots = algorithm == Algorithm::Default || algorithm == Algorithm::Slots || c.largestInput() == 0;
  return size == SizeClass::Small && inSlots ? small(c) : large(c, algorithm);
}

// Small inputs: every rank reads all of them. An input in the heap need not be copied to a slot, but this costs a second
// synchronization. It pays if synchronizations are cheap, and is impossible if the output overwrites the input.
int64_t HostCommunicator::small(const HostCall& c) {
  Place place = kNowhere;
  Place parts = kNowhere;
  if (c.gives() && c.inBytes() > 0 && c.inBytes() <= static_cast<int64_t>(sizeof(parts))) {
    place = kInLine;
    std::memcpy(&parts, c.in, c.inBytes());
  } else if (c.gives() && c.inBytes() > 0) {
    const bool direct =
        group_.coreForEachRank() && c.inBytes() > options_.thresholds.slotsOfSharedInput && !c.inPlace();
    place = direct ? group_.heap().offsetOf(c.in, c.inBytes()) : kNotInHeap;
    if (place == kNotInHeap) {
      const Area area = nextArea(Slot0);
      copyForPeers(c, areaOf(rank(), area));
      place = placeOf(area);
    }
  }
  announce(c.team, c.record, place, parts);
  copyOwnBlock(c, OwnPart::OnArrival);
  meet(c.team, c.record);
  way_ = c.record.count > 0 || c.record.ragged ? Algorithm::Slots : Algorithm::Default;
  if (isArea(place)) {
    prefetchForWriting(areaOf(rank(), static_cast<Area>(Slot0 + nextOf_[0])), std::min<int64_t>(c.inBytes(), 256));
  }
  if (hasSmallInputs(c, place)) {
    const int64_t received = c.gathers() ? copySmallBlocks(c) : reduceSmallInputs(c);
    copyOwnBlock(c, OwnPart::Rest);
    finish(c.team);
    return received;
  }
  setSources(c, {place, kNowhere});
  const int64_t received = c.record.count > 0 ? pullPiece(c, 0, c.blocks.largest(), 0) : 0;
  end(c);
  return received;
}

void HostCommunicator::copyForPeers(const HostCall& c, std::byte* slot) {
  const int64_t own = c.inputHasBlocks() ? c.blocks.begin(c.position) * c.elementBytes() : 0;
  const int64_t behind = c.inputHasBlocks() ? own + c.blocks.of(c.position) * c.elementBytes() : 0;
  std::memcpy(slot, c.in, own);
  std::memcpy(slot + behind, c.in + behind, c.inBytes() - behind);
}

bool HostCommunicator::hasSmallInputs(const HostCall& c, Place own) const {
  const auto isSmall = [](Place place) { return isArea(place) || place == kInLine; };
  return (c.gathers() || (c.traits().reduces && c.gets())) && !c.traits().operandIsOfRoot && c.blocks.sizes.empty() &&
         c.blocks.size > 0 && isSmall(own) &&
         std::ranges::all_of(peersIn(c.team), [&](int64_t p) { return isSmall(lineFrom(p).in); });
}

const std::byte* HostCommunicator::smallInputOf(int64_t peer) const {
  const PairLine& line = lineFrom(peer);
  return line.in == kInLine ? reinterpret_cast<const std::byte*>(&line.parts) : areaOf(peer, areaOfPiece(line.in, 0));
}

int64_t HostCommunicator::copySmallBlocks(const HostCall& c) {
  const int64_t bytes = c.blocks.size * c.elementBytes();
  const int64_t skipped = c.inputHasBlocks() ? c.position * bytes : 0;
  std::byte* to = c.out;
  for (const int64_t p : c.team.ranks) {
    if (p != rank()) {  // see copyOwnBlock
      std::memcpy(to, smallInputOf(p) + skipped, bytes);
    }
    to += bytes;
  }
  return bytes * (c.ranks() - 1);
}

int64_t HostCommunicator::reduceSmallInputs(const HostCall& c) {
  const int64_t bytes = c.blocks.size * c.elementBytes();
  const int64_t skipped = c.inputHasBlocks() ? c.position * bytes : 0;
  inputs_.clear();
  for (const int64_t p : c.team.ranks) {
    inputs_.push_back((p == rank() ? c.in : smallInputOf(p)) + skipped);
  }
  reduceInRankOrder(inputs_, c.out, c.blocks.size, c.record.type, c.record.op);
  return bytes * (c.ranks() - 1);
}

int64_t HostCommunicator::large(HostCall c, Algorithm algorithm) {
  const int64_t bytesPerElement = c.elementBytes() * (c.inputHasBlocks() ? c.blocks.number : 1);
  const int64_t pieceBytes = std::min<int64_t>(options_.thresholds.piece, kStageBytes);
  int64_t pieceElements = pieceBytes / bytesPerElement;
  pieceElements -= pieceElements > kPieceMultiple ? pieceElements % kPieceMultiple : 0;
  invariant(pieceElements > 0, "[host] {} blocks do not fit into a piece of {} bytes", c.blocks.number, pieceBytes);
  const bool readsHeaps = algorithm != Algorithm::Staged;
  auto placeOfBuffer = [&](const std::byte* buffer) {
    return readsHeaps ? group_.heap().offsetOf(buffer, c.inBytes()) : kNotInHeap;
  };
  Place in = c.gives() ? placeOfBuffer(c.in) : kNowhere;
  Place parts = c.record.kind == Collective::AllReduce ? placeOfBuffer(c.out) : kNowhere;
  if (in == kNotInHeap && isReadByTheKernel(c, algorithm)) {
    in = placeOf(c.in);
  } else if (in == kNotInHeap) {
    const Area area = nextArea(Stage0);
    stagePiece(c, 0, pieceElements, areaOf(rank(), area));
    in = placeOf(area);
  }
  if (parts == kNotInHeap) {
    parts = placeOf(nextArea(Parts0));
  }
  c.ownTakesTurns = c.gatheredOwnBytes() >= kFarFrom && !isArea(in);
  announce(c.team, c.record, in, parts);
  copyOwnBlock(c, OwnPart::OnArrival);
  meet(c.team, c.record);
  setSources(c, {in, parts});
  way_ = wayOf(c, algorithm);
  auto staged = [&](const Source& s) { return isArea(s.in) || (isArea(s.parts) && way_ != Algorithm::Whole); };
  const bool isInPieces = std::ranges::any_of(sources_, staged);
  if (isInPieces && c.ownTakesTurns) {
    // Only peers have staged their buffers. Pieces are too small for streaming stores.
    c.ownTakesTurns = false;
    copyOwnBlock(c, OwnPart::OnArrival);
  }
  const int64_t received = isInPieces ? inPieces(c, pieceElements) : pullPiece(c, 0, c.blocks.largest(), 0);
  end(c);
  return received;
}

void HostCommunicator::setSources(const HostCall& c, Source own) {
  sources_.clear();
  for (int64_t p : c.team.ranks) {
    const PairLine& line = lineFrom(p);
    sources_.push_back(p == rank() ? own : Source{line.in, line.in == kInLine ? kNowhere : line.parts});
  }
}

// Saves one copy compared with staging. Not for reductions whose inputs this rank cannot read in place.
bool HostCommunicator::isReadByTheKernel(const HostCall& c, Algorithm algorithm) const {
  return !c.traits().reduces && algorithm != Algorithm::Staged && group_.canReadProcesses() &&
         c.blocks.largest() * c.elementBytes() >= options_.thresholds.readProcess;
}

// Peers may read a buffer in place until they have finished; areas are guarded by their last use.
void HostCommunicator::end(const HostCall& c) {
  if (std::ranges::any_of(sources_, [](const Source& s) { return s.in >= 0 || s.parts >= 0 || isAddress(s.in); })) {
    finishSynchronized(c);
  } else {
    copyOwnBlock(c, OwnPart::Rest);
    finish(c.team);
  }
}

// The part on arrival is the first one in the order of the copy.
void HostCommunicator::copyOwnBlock(const HostCall& c, OwnPart part) {
  const bool forward = c.order == CopyOrder::Forward;
  const int64_t split = forward ? c.ownBytesOnArrival() : c.ownBytes() - c.ownBytesOnArrival();
  const bool isLower = forward == (part == OwnPart::OnArrival);
  const int64_t from = isLower ? 0 : split;
  const int64_t to = isLower ? split : c.ownBytes();
  if (from == to) {
    return;
  }
  const int64_t before = c.blocks.begin(c.position) * c.elementBytes();
  copyOfBlock(c.out + before + from, c.in + (c.inputHasBlocks() ? before : 0) + from, to - from, c.ownBytes(), c.order);
}

// An all-reduce in which every rank computes the whole result: of two ranks, if it fits into their caches. Two ranks that share
// the work move as many bytes, with one more synchronization. Not if an output overwrites an input that the other rank reads.
bool HostCommunicator::everyRankReducesAll(const HostCall& c, Algorithm asked) const {
  const bool wanted = asked == Algorithm::Whole;
  const bool pays =
      asked == Algorithm::Default && sources_.size() == 2 && c.inBytes() <= options_.thresholds.reduceAllOfTwo;
  auto isReadable = [&](const Source& s) { return (s.in >= 0 && s.in != s.parts) || (wanted && isArea(s.in)); };
  return c.record.kind == Collective::AllReduce && (wanted || pays) && std::ranges::all_of(sources_, isReadable);
}

Algorithm HostCommunicator::wayOf(const HostCall& c, Algorithm asked) const {
  if (everyRankReducesAll(c, asked)) {
    return Algorithm::Whole;
  }
  const auto isStaged = [](const Source& s) { return isArea(s.in) || isArea(s.parts); };
  return std::ranges::any_of(sources_, isStaged) ? Algorithm::Staged
         : asked == Algorithm::Push              ? asked
                                                 : Algorithm::Pull;
}

// The existing elements of the range [from, from + elements) of every block, concatenated.
void HostCommunicator::stagePiece(const HostCall& c, int64_t from, int64_t elements, std::byte* stage) const {
  const int64_t first = c.inputHasBlocks() ? 0 : c.inputBlock();
  const int64_t end = c.inputHasBlocks() ? c.blocks.number : first + 1;
  const std::byte* block = c.in;
  for (int64_t b = first; b < end; ++b) {
    const int64_t bytes = c.blocks.within(b, from, elements) * c.elementBytes();
    if (bytes > 0) {
      std::memcpy(stage, block + from * c.elementBytes(), bytes);
    }
    stage += bytes;
    block += c.blocks.of(b) * c.elementBytes();
  }
}

int64_t HostCommunicator::inPieces(const HostCall& c, int64_t pieceElements) {
  const Source own = sources_[c.position];
  int64_t received = 0;
  const int64_t largest = c.blocks.largest();
  for (int64_t from = 0, piece = 0; from < largest; from += pieceElements, ++piece) {
    const int64_t elements = std::min(pieceElements, largest - from);
    if (piece > 0) {
      // The areas alternate: all have read piece k before any of them begins piece k + 1, and k + 2 may overwrite it.
      if (isArea(own.in)) {
        stagePiece(c, from, elements, areaOf(rank(), nextArea(Stage0)));
      }
      if (isArea(own.parts)) {
        nextArea(Parts0);
      }
      synchronize(c.team);
    }
    received += pullPiece(c, from, elements, piece);
  }
  return received;
}

// Elements [from, from + elements) of every block. An area holds one piece at a time, a heap the whole input.
int64_t HostCommunicator::pullPiece(const HostCall& c, int64_t from, int64_t elements, int64_t piece) {
  if (!c.gets()) {
    return 0;
  }
  const int64_t offset = from * c.elementBytes();
  const int64_t ownBlock = c.inputHasBlocks() ? c.blocks.begin(c.position) * c.elementBytes() : 0;
  const int64_t ownBlockOfPiece =
      c.inputHasBlocks() ? c.blocks.beginWithin(c.position, from, elements) * c.elementBytes() : 0;
  buffers_.clear();
  for (const int64_t i : indices(sources_)) {
    const int64_t p = c.team.ranks[i];
    const Source& s = sources_[i];
    PeerBuffers b;
    if (p == rank()) {
      b.in = placeIn(c.in, ownBlock + offset);
    } else if (isArea(s.in)) {
      b.in = areaOf(p, areaOfPiece(s.in, piece)) + ownBlockOfPiece;
    } else if (s.in == kInLine) {
      b.in = reinterpret_cast<const std::byte*>(&lineFrom(p).parts) + ownBlockOfPiece;
    } else if (isAddress(s.in)) {
      b.in = addressOf(s.in) + ownBlock + offset;
      b.process = p;
    } else if (s.in != kNowhere) {
      b.in = group_.heapOf(p) + s.in + ownBlock + offset;
    }
    if (isArea(s.parts)) {
      b.parts = areaOf(p, areaOfPiece(s.parts, piece));
    } else if (s.parts != kNowhere) {
      std::byte* output = group_.heapOf(p) + s.parts + offset;
      b.parts = output;
      b.out = way_ == Algorithm::Push ? output : nullptr;
    }
    if (c.gathers()) {
      b.out = placeIn(c.out, c.blocks.begin(i) * c.elementBytes() + offset);
      b.bytes = p == rank() && !c.ownTakesTurns ? 0 : c.blocks.within(i, from, elements) * c.elementBytes();
    }
    buffers_.push_back(b);
  }
  const std::function<void()> synchronizeTeam = [&] {
    group_.checkReadInPlace();  // before peers read what this rank has computed
    synchronize(c.team);
  };
  const std::function<void()> throwIfFailed = [this] { group_.throwIfFailed(); };
  const PullCall::ReadProcess readProcess = [this](int64_t process, const std::byte* at, std::byte* to, int64_t bytes) {
    group_.readProcess(process, at, to, bytes);
  };
  const Source& own = sources_[c.position];
  const PullCall call{
      .position = c.position,
      .peers = buffers_,
      .out = placeIn(c.out, offset),
      .parts = isArea(own.parts) ? areaOf(rank(), areaOfPiece(own.parts, piece)) : placeIn(c.out, offset),
      .count = c.blocks.within(c.inputHasBlocks() ? c.position : 0, from, elements),
      .type = c.record.type,
      .op = c.record.op,
      .order = c.order,
      .kind = c.record.kind,
      .root = c.record.root,
      .synchronize = &synchronizeTeam,
      .throwIfFailed = &throwIfFailed,
      .readProcess = &readProcess};
  // A full reduction does with the whole tensor what a reduce-scatter does with its block.
  const bool reducesAll =
      c.record.kind == Collective::AllReduce && (way_ == Algorithm::Whole || way_ == Algorithm::Slots);
  return reducesAll ? pullReduced(call) : way_ == Algorithm::Push ? pushAllReduce(call) : meshfuse::pull(call);
}

}  // namespace meshfuse
