// Tests that this build cannot pass because a dependency is off.
#pragma once

namespace meshfuse {

// Skips them with the reason, before they start.
void skipWhatThisBuildLacks();

}  // namespace meshfuse
