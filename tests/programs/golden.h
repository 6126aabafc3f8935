// Golden tests of passes: tests/<stage>/<pass>.fir holds cases separated by `// ====`, each the input, a line `// ----` and the
// expected text. `error: text` expects a UserError that contains the text. MESHFUSE_UPDATE_GOLDEN=1 rewrites the expectations.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/pass_runner.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {

// Each case of the pass's file through `transform`. A file that is missing fails.
void runGolden(std::string_view stage, std::string_view pass,
               const std::function<std::string(const std::string&)>& transform);

// What `text` gives after the pass, which says whether it changed anything, has nothing left to do, and leaves a fusion that
// verifies.
template <class Context>
std::string runCheckedPass(const PassRow<Fusion, Context>& row, Fusion& fusion, Context& context,
                           const std::function<std::string()>& text) {
  const std::string before = text();
  const bool changed = row.run(fusion, context);
  const std::string after = text();
  EXPECT_EQ(changed, before != after) << "a pass says whether it changed anything";
  EXPECT_FALSE(row.run(fusion, context)) << "a pass is idempotent";
  EXPECT_EQ(text(), after);
  EXPECT_EQ(verify(fusion), std::vector<std::string>{});
  return after;
}

}  // namespace meshfuse
