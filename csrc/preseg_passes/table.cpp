#include "preseg_passes/table.h"

#include <filesystem>
#include <fstream>

#include "analysis/pass_context.h"
#include "base/hash.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "meshfuse_config.h"
#include "preseg_passes/check_annotations.h"
#include "preseg_passes/decompose_reshardings.h"
#include "preseg_passes/partialize_reductions.h"
#include "preseg_passes/plan_redistributions.h"
#include "preseg_passes/privatize_casts.h"
#include "preseg_passes/propagate_shardings.h"
#include "preseg_passes/remove_unneeded_sets.h"

namespace meshfuse {

namespace {

const PassRow<Fusion, PassContext> kPasses[] = {
    {"check-annotations", checkAnnotations, "first: all others may rely on shardings being rectangles with even parts"},
    {"privatize-casts", privatizeCasts, "before shardings spread: each use of a cast may then take its own"},
    {"propagate-shardings", propagateShardings, "needs the final graph; all that follows reads shardings"},
    {"partialize-reductions", partializeReductions,
     "before reshards: a sum over a sharded dim must not gather its operand"},
    {"decompose-reshardings", decomposeReshardings,
     "when all shardings are final; afterwards only Redistribute communicates"},
    {"remove-unneeded-sets", removeUnneededSets,
     "after the reshards stand alone: copies that only carried an annotation would cost kernels"},
    {"plan-redistributions", planRedistributions,
     "last: what each reshard costs is known when no sharding changes any more"},
};

// Writes what `meshfuse opt --pass=...` needs to fail alike: the program before the stage and the passes from the failed one on.
std::string writeReproducer(std::string_view pass, const std::string& text) {
  std::string remaining;
  for (const PassRow<Fusion, PassContext>& row : kPasses) {
    if (!remaining.empty() || row.name == pass) {
      remaining += fmt::format("{}{}", remaining.empty() ? "" : ",", row.name);
    }
  }
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::temp_directory_path(error) / fmt::format("meshfuse-{}.fir", hashText(text).hex());
  std::ofstream file(path);
  file << fmt::format("# meshfuse {}: {} failed\n# remaining passes: {}\n", kVersion, pass, remaining) << text;
  return file.good() ? path.string() : "";
}

}  // namespace

std::span<const PassRow<Fusion, PassContext>> presegPasses() { return kPasses; }

void runPresegPasses(Fusion& fusion, PassContext& context) {
  const PassRunner<Fusion, PassContext> runner{
      .stage = "preseg",
      .print = [](const Fusion& f) { return f.toString(); },
      .verify = [](const Fusion& f) { return verify(f); },
      .reproduce = writeReproducer,
  };
  runner.run(presegPasses(), fusion, context);
}

}  // namespace meshfuse
