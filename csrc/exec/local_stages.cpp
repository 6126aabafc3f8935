#include "exec/local_stages.h"

#include <fmt/ranges.h>

#include <optional>
#include <string>

#include "base/build_id.h"
#include "base/disk_cache.h"
#include "base/environment.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "exec/arguments.h"
#include "exec/compile.h"
#include "ir/fusion.h"

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

// Nothing if the build has no identifier, if passes are to be dumped, and if they are not verified.
std::optional<Hash128> keyOfCut(const SegmentedProgram& program, const LocalContext& context, int64_t rank) {
  if (!context.verify || program.text == nullptr || buildId().empty() || !environmentText("MESHFUSE_DUMP").empty()) {
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

}  // namespace

LocalContext localContext(const SegmentedProgram& program, const Fusion& local, std::span<const Argument> inputs,
                          int64_t rank, const DeviceInfo& device, const PassSettings& passes) {
  LocalContext context{.layouts = inputLayouts(local, inputs), .device = device, .verify = passes.verify};
  DiskCache* disk = kernelDiskCache().get();
  if (const std::optional<Hash128> key = disk == nullptr ? std::nullopt : keyOfCut(program, context, rank)) {
    context.stored = {.disk = disk, .key = *key, .entry = disk->load(*key)};
    context.verify = !context.stored->entry;
  }
  return context;
}

}  // namespace meshfuse
