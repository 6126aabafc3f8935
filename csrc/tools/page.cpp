#include "tools/page.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "tools/page_markup.h"
#include "tools/page_sections.h"
#include "tools/page_tiles.h"

namespace meshfuse {

namespace {

std::string figure(std::string_view what, const std::string& value, std::string_view detail) {
  return fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span><small>{}</small></div>\n", value, what, detail);
}

std::string counted(size_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

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

std::string explanationPage(std::string_view title, const Explanation& e, const Timeline& timeline) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{0} \u2013 meshfuse</title>\n"
      "<style>\n{1}{2}</style>\n</head>\n<body>\n<header class=\"top\"><div><h1>{0}</h1>"
      "<p>explained by meshfuse</p></div><button id=\"theme\" type=\"button\" title=\"light or "
      "dark\">\u25d0</button></header>\n",
      escaped(title), pageText("page.css"), rankColours(e));
  constexpr std::string_view kSections[] = {"program", "tensors", "edges", "steps", "memory", "timeline"};
  page += "<nav>" + joined(kSections, "", [](auto id) { return fmt::format("<a href=\"#{0}\">{0}</a>", id); });
  page += "</nav>\n<main>\n" + figures(e) + programSection(e) + tensorsSection(e) + edgesSection(e) + stepsSection(e) +
          memorySection(e) + timelineSection(timeline);
  return page + fmt::format("</main>\n<script>\n{}</script>\n</body>\n</html>\n", pageText("page.js"));
}

}  // namespace meshfuse
