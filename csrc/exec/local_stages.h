// The stages of a rank, from the planned program to the context of its steps, and what is stored of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "analysis/pass_settings.h"
#include "base/hash.h"
#include "segment/local_context.h"
#include "tensor/argument.h"

namespace meshfuse {

class DiskCache;
class Fusion;
struct SegmentedProgram;

// The keys of what is stored of the stages of rank `rank`: its local program with its RankFacts, and the steps into which the local program is
// cut. Hashes of all that these follow from, and of the build. Nothing if the build has no identifier, if passes are to be dumped, or if
// they are not verified. keyOfPart() also gives nothing for a program for constant sizes that was made from that of a class. `fusion`: that
// was planned.
[[nodiscard]] std::optional<Hash128> keyOfPart(const SegmentedProgram& program, const Fusion& fusion, int64_t rank,
                                               const DeviceInfo& device, const PassSettings& passes);
[[nodiscard]] std::optional<Hash128> keyOfCut(const SegmentedProgram& program, const LocalContext& context,
                                              int64_t rank);

// The program of rank `rank`, as localize() makes it of the planned program. Sets `program.ofRank`. Both are loaded from `disk` if they are
// there, so that nothing reads the planned program, else made and stored there; an entry under this key from which they cannot be read is
// deleted. Null: no disk. New values get numbers that no value of the planned program has. `fusion`: that was planned; it has the names of
// the builders.
[[nodiscard]] std::shared_ptr<Fusion> localProgram(SegmentedProgram& program, const Fusion& fusion, int64_t rank,
                                                   const DeviceInfo& device, const PassSettings& passes,
                                                   DiskCache* disk);

// `local`: the part of rank `rank` of `program`, whose plan the ranks have agreed on. If the steps of this program are on `disk`, its passes
// are not verified again: they were when the steps were stored. Null: no disk.
[[nodiscard]] LocalContext localContext(const SegmentedProgram& program, const Fusion& local,
                                        std::span<const Argument> inputs, int64_t rank, const DeviceInfo& device,
                                        const PassSettings& passes, DiskCache* disk);

}  // namespace meshfuse
