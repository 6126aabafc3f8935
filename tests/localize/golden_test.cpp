// The golden programs of localize (programs/golden.h).
#include "localize/localize.h"

#include "analysis/pass_context.h"
#include "preseg_passes/plan_redistributions.h"
#include "programs/golden.h"

namespace meshfuse {
namespace {

TEST(Golden, Localize) {
  runGolden("localize", "localize", [](const std::string& input) {
    const std::unique_ptr<Fusion> fusion = parseFusion(input);
    PassContext context(*fusion);
    planRedistributions(*fusion, context);
    return localize(*fusion)->toString();
  });
}

}  // namespace
}  // namespace meshfuse
