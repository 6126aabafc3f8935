#include "exec/local_stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/build_id.h"
#include "base/disk_cache.h"
#include "base/entry_texts.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "exec/arguments.h"
#include "exec/compile.h"
#include "exec/overlap.h"
#include "ir/fusion.h"
#include "localize/localize.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

// All that schedules depend on. What the library accepts follows from its name and the build.
std::string textOf(const DeviceInfo& d) {
  const GpuFacts& g = d.gpu;
  return fmt::format("{} {} {} {} {} {} [{} {} {} {} {} {} {}] {} {} {} {} {} {}\n", static_cast<int>(d.target),
                     d.l1Bytes, d.l2Bytes, d.followedStreams, d.lastCacheBytes, d.architecture, g.processors, g.threads,
                     g.registers, g.sharedBytes, g.sharedBytesOfBlock, g.accessBytes, g.bytesPerMicrosecond, d.library,
                     d.mostWorkspaceBytes, d.knowsWorkspaces, d.refuseContraction != nullptr,
                     d.refuseCollective != nullptr, d.combinedBytes != nullptr);
}

// False if the build has no identifier, if passes are to be dumped, and if they are not verified.
bool isStorable(const SegmentedProgram& program, bool verify) {
  return verify && program.text != nullptr && !buildId().empty() && environmentText("MESHFUSE_DUMP").empty();
}

// The global shapes of the outputs for which a shard does not determine them.
std::vector<std::vector<int64_t>> unevenGlobalShapesOf(const Fusion& planned, int64_t rank) {
  return mapped(planned.outputs(), [rank](const Val* out) {
    const ShardState state = shardState(out->asTensor());
    const bool isGiven = isRagged(state) || !holds(state.mesh, rank);
    return isGiven ? out->asTensor()->constantShape() : std::vector<int64_t>();
  });
}

constexpr int64_t kMostNumbers = int64_t{1} << 24;  // more are no program

struct RankPart {
  int64_t numbers = 0;  // values of the program or the planned one have smaller ones
  std::shared_ptr<Fusion> local;
  RankFacts facts;
};

// New values of `local` get numbers from `numbers` on: what later stages say of a value's number is of no planned one. A value takes the last of
// these numbers for a moment.
void keepNumbersBelow(int64_t numbers, Fusion& local) {
  if (local.numVals() < numbers && !local.outputs().empty()) {
    Val* const out = local.outputs()[0];
    const int64_t own = out->id();
    local.renumber(out, numbers - 1);
    local.renumber(out, own);
  }
}

// Nothing if the bytes are no part.
std::optional<RankPart> partFrom(const std::string& bytes, const Fusion& fusion) {
  try {
    EntryReader reader(bytes);
    RankPart part;
    for (const std::string& line : reader.texts()) {
      const size_t space = std::min(line.find(' '), line.size());
      part.facts.coordinates[line.substr(std::min(space + 1, line.size()))] =
          EntryReader::number(std::string_view(line).substr(0, space));
    }
    part.facts.overlap.allowed = reader.flag("allowed");
    part.facts.overlap.endsTogether = reader.flag("ends together");
    if (const std::string_view memory = reader.text(); !memory.empty()) {
      part.facts.overlap.memory = EntryReader::number(memory);
    }
    part.facts.unevenGlobalShapes =
        mapped(reader.texts(), [](const std::string& t) { return EntryReader::numbers(t); });
    const Builders builders = buildersFrom(reader.texts(), fusion);
    part.numbers = EntryReader::number(reader.text());
    part.local = parseWith(builders, reader.text());
    reader.finish();
    check(part.numbers <= kMostNumbers, "[local program] {} numbers of values; expected at most {}", part.numbers,
          kMostNumbers);
    keepNumbersBelow(part.numbers, *part.local);
    return part;
  } catch (const Error&) {  // an InternalError, too: no fusion has printed the text
    return std::nullopt;
  }
}

std::string entryOf(const RankPart& part) {
  const RankFacts& facts = part.facts;
  EntryWriter writer;
  writer.add(mapped(facts.coordinates, [](const auto& c) { return fmt::format("{} {}", c.second, c.first); }));
  writer.add(facts.overlap.allowed ? "allowed" : "");
  writer.add(facts.overlap.endsTogether ? "ends together" : "");
  writer.add(facts.overlap.memory ? std::to_string(*facts.overlap.memory) : "");
  writer.add(
      mapped(facts.unevenGlobalShapes, [](const auto& shape) { return fmt::format("{}", fmt::join(shape, " ")); }));
  writer.add(linesOf(buildersOf(*part.local)));
  writer.add(std::to_string(part.numbers));
  writer.add(part.local->toString());
  return writer.bytes();
}

}  // namespace

std::optional<Hash128> keyOfPart(const SegmentedProgram& program, const Fusion& fusion, int64_t rank,
                                 const DeviceInfo& device, const PassSettings& passes) {
  if (!isStorable(program, passes.verify) || program.sizes.isConstant() != program.agreedOn->sizes.isConstant()) {
    return std::nullopt;
  }
  const auto lineOf = [](const auto& value) { return fmt::format("{} is {}", value.first, value.second); };
  return hashText(fmt::format(
      "part of build {}\n{} rank {} target {} overlap {}\n{}\n{}\n{}", buildId(), hashText(*program.text).hex(), rank,
      static_cast<int>(device.target), passes.overlapCommunication, joined(program.sizes.toLines(), "\n"),
      joined(program.agreedOn->sizes.values, "\n", lineOf), joined(linesOf(buildersOf(fusion)), "\n")));
}

std::optional<Hash128> keyOfCut(const SegmentedProgram& program, const LocalContext& context, int64_t rank) {
  if (!isStorable(program, context.verify)) {
    return std::nullopt;
  }
  // `identity` also knows the sizes of a program for constant sizes that has the text of a class
  std::string text =
      fmt::format("steps of build {}\n{} {} {}\nrank {} {}", buildId(), hashText(*program.text).hex(),
                  program.agreed.identity, joined(program.sizes.toLines(), "\n"), rank, textOf(context.device));
  for (const auto& [id, layout] : context.layouts) {
    text += fmt::format("{} [{}] {}\n", id, joined(layout.strides, " ", &IntExpr::toString), layout.alignment);
  }
  return hashText(text);
}

std::shared_ptr<Fusion> localProgram(SegmentedProgram& program, const Fusion& fusion, int64_t rank,
                                     const DeviceInfo& device, const PassSettings& passes, DiskCache* disk) {
  const std::optional<Hash128> key = disk == nullptr ? std::nullopt : keyOfPart(program, fusion, rank, device, passes);
  const std::optional<std::string> entry = key ? disk->load(*key) : std::nullopt;
  std::optional<RankPart> part = entry ? partFrom(*entry, fusion) : std::nullopt;
  if (entry && !part) {
    disk->drop(*key);
  }
  if (!part) {
    const Fusion& planned = *program.planned;
    part = RankPart{.local = localize(planned, rank),
                    .facts = {.coordinates = CoordinateSymbols(planned).valuesOn(rank),
                              .overlap = overlapOf(*program.agreedOn, passes.overlapCommunication, device),
                              .unevenGlobalShapes = unevenGlobalShapesOf(planned, rank)}};
    part->numbers = std::max(planned.numVals(), part->local->numVals());
    // Exprs have the order of the text once it is parsed. Where that is another order, later stages may give other steps: not stored.
    if (key && std::ranges::is_sorted(part->local->exprs(), {}, &Expr::id)) {
      const std::string made = entryOf(*part);
      if (std::optional<RankPart> parsed = partFrom(made, fusion); parsed && entryOf(*parsed) == made) {
        disk->store(*key, made);
        part = std::move(parsed);  // new values get the numbers that they get when it is loaded
      }
    }
  }
  program.ofRank = std::move(part->facts);
  return std::move(part->local);
}

LocalContext localContext(const SegmentedProgram& program, const Fusion& local, std::span<const Argument> inputs,
                          int64_t rank, const DeviceInfo& device, const PassSettings& passes, DiskCache* disk) {
  LocalContext context{.layouts = inputLayouts(local, inputs), .device = device, .verify = passes.verify};
  if (const std::optional<Hash128> key = disk == nullptr ? std::nullopt : keyOfCut(program, context, rank)) {
    context.stored = {.disk = disk, .key = *key, .entry = disk->load(*key)};
    context.verify = !context.stored->entry;
  }
  return context;
}

}  // namespace meshfuse
