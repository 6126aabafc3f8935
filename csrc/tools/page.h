// An explanation as one self-contained page: strict XHTML that a browser reads as HTML5, with style and script inside. Deterministic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exec/explain.h"
#include "tools/traced_run.h"

namespace meshfuse {

struct PageContent {
  std::string title;  // of the program: its file's name
  Explanation explanation;
  std::vector<RankSpans> timeline;  // of a run; empty: none
};

[[nodiscard]] std::string explanationPage(const PageContent& content);

// page.css, page.js
[[nodiscard]] std::string_view pageText(std::string_view file);

}  // namespace meshfuse
