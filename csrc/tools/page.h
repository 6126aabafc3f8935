// An explanation as one self-contained page: strict XHTML that a browser reads as HTML5, with style and script inside. Deterministic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exec/explain.h"
#include "tools/traced_run.h"

namespace meshfuse {

struct PageParts {
  std::string_view title;
  std::string_view by;                     // what made it
  std::string style;                       // rules besides page.css
  std::vector<std::string_view> sections;  // ids, for links
  std::string body;
};
[[nodiscard]] std::string pageOf(const PageParts& parts);

// title: the name of the program's file; timeline: of a run, or empty.
[[nodiscard]] std::string explanationPage(std::string_view title, const Explanation& e, const Timeline& timeline);

// page.css, page.js
[[nodiscard]] std::string_view pageText(std::string_view file);

}  // namespace meshfuse
