#include "tools/page.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "tools/page_markup.h"
#include "tools/page_sections.h"
#include "tools/page_tiles.h"

namespace meshfuse {

namespace {

std::string figures(const Explanation& e) {
  const auto related = [&](std::string_view relation) {
    return std::ranges::count(e.edges, relation, &ExplainedEdge::relation);
  };
  const auto kernels = std::ranges::count(e.steps, "kernel", &ExplainedStep::kind);
  const auto libraries = std::ranges::count(e.steps, "library", &ExplainedStep::kind);
  size_t ranks = 1;
  for (const ExplainedMesh& m : e.meshes) {
    ranks = std::max(ranks, m.ranks.size());
  }
  return "<div class=\"figures\">\n" +
         figure("ranks", std::to_string(ranks), e.meshes.empty() ? "no mesh" : escaped(e.meshes[0].name)) +
         figure("tensors", std::to_string(e.tensors.size()), counted(e.edges.size(), "edge")) +
         figure("edges that move data", std::to_string(related("comm")),
                fmt::format("{} aligned, {} local", related("aligned"), related("local"))) +
         figure("received by a rank", shortBytes(static_cast<double>(e.bytesReceived())),
                counted(e.communications.size(), "collective")) +
         figure("kernels", std::to_string(kernels), counted(libraries, "library call")) +
         figure("peak memory of a rank", shortBytes(static_cast<double>(e.peakBytes)),
                fmt::format("{} of it the arena", shortBytes(static_cast<double>(e.arenaBytes)))) +
         "</div>\n";
}

}  // namespace

std::string pageOf(const PageParts& parts) {
  const auto link = [](std::string_view id) { return fmt::format("<a href=\"#{0}\">{0}</a>", id); };
  return fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{0} \u2013 meshfuse</title>\n"
      "<style>\n{1}{2}</style>\n</head>\n<body>\n<header class=\"top\"><div><h1>{0}</h1>"
      "<p>{3}</p></div><button id=\"theme\" type=\"button\" title=\"light or "
      "dark\">\u25d0</button></header>\n<nav>{4}</nav>\n<main>\n{5}</main>\n<script>\n{6}</script>\n</body>\n</html>\n",
      escaped(parts.title), pageText("page.css"), parts.style, parts.by, joined(parts.sections, "", link), parts.body,
      pageText("page.js"));
}

std::string explanationPage(std::string_view title, const Explanation& e, const Timeline& timeline) {
  return pageOf({.title = title,
                 .by = "explained by meshfuse",
                 .style = rankColours(e),
                 .sections = {"program", "tensors", "edges", "steps", "memory", "timeline"},
                 .body = figures(e) + programSection(e) + tensorsSection(e) + edgesSection(e) + stepsSection(e) +
                         memorySection(e) + timelineSection(timeline)});
}

}  // namespace meshfuse
