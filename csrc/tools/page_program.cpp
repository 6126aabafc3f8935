// The planned program, line by line: on the left arcs from producers to consumers, on the right the sharding of each tensor.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>

#include "tools/page_markup.h"
#include "tools/page_sections.h"
#include "tools/page_tiles.h"

namespace meshfuse {

namespace {

constexpr double kLine = 26;  // the line height of page.css
constexpr double kGutter = 84;

struct Line {
  std::string text;
  std::string tensor;  // its result; empty: none
};

std::vector<Line> linesOf(const std::string& program) {
  std::vector<Line> lines;
  std::istringstream text(program);
  for (std::string line; std::getline(text, line);) {
    const size_t begin = line.find_first_not_of(' ');
    const size_t equals = line.find(" = ");
    std::string tensor;
    if (begin != std::string::npos && line[begin] == 'T' && equals != std::string::npos) {
      tensor = line.substr(begin, line.find_first_of(", ", begin) - begin);
    }
    lines.push_back({line, tensor});
  }
  return lines;
}

std::string arc(const ExplainedEdge& e, size_t from, size_t to) {
  const double y0 = (static_cast<double>(from) + 0.5) * kLine;
  const double y1 = (static_cast<double>(to) + 0.5) * kLine;
  const double reach = std::min(kGutter - 8, 10 + 11 * std::sqrt(std::abs(y1 - y0) / kLine));
  return fmt::format(
      R"(<g class="arc {}" data-e="{} {}"><title>{}</title><path d="M {:.1f} {:.1f} C {:.1f} {:.1f}, {:.1f} {:.1f}, {:.1f} {:.1f}"></path><circle cx="{:.1f}" cy="{:.1f}" r="2.6"></circle></g>)"
      "\n",
      e.relation, e.from, e.to,
      escaped(fmt::format("{} to {}: {}{}{}", e.from, e.to, e.relation, e.reason.empty() ? "" : ", ", e.reason)),
      kGutter, y0, kGutter - reach, y0 + (y1 - y0) * 0.12, kGutter - reach, y1 - (y1 - y0) * 0.12, kGutter - 3, y1,
      kGutter - 3, y1);
}

std::string place(const ExplainedTensor& t) {
  return fmt::format("<span class=\"where\"><span class=\"mini\">{}</span><span class=\"chip\">{}</span></span>",
                     tensorPicture(t, {.width = 46, .height = 20, .labels = false}), withoutMesh(t.sharding));
}

}  // namespace

std::string programSection(const Explanation& e) {
  const std::vector<Line> lines = linesOf(e.program);
  std::map<std::string, size_t> lineOf;
  std::map<std::string, const ExplainedTensor*> tensorOf;
  for (int64_t k = 0; k < std::ssize(lines); k++) {
    lineOf.try_emplace(lines[k].tensor, k);
  }
  for (const ExplainedTensor& t : e.tensors) {
    tensorOf[t.name] = &t;
  }
  std::string body = fmt::format(
      R"(<div class="program card"><svg class="arcs" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)"
      "\n",
      kGutter, static_cast<double>(lines.size()) * kLine);
  for (const ExplainedEdge& edge : e.edges) {
    const auto from = lineOf.find(edge.from);
    const auto to = lineOf.find(edge.to);
    if (from != lineOf.end() && to != lineOf.end()) {
      body += arc(edge, from->second, to->second);
    }
  }
  body += "</svg>\n<div class=\"lines\">\n";
  for (const Line& line : lines) {
    const auto tensor = tensorOf.find(line.tensor);
    const bool moves = line.text.find(" = redistribute(") != std::string::npos;
    body += fmt::format("<div class=\"line{}\"{}><code>{}</code>{}</div>\n", moves ? " moves" : "",
                        tensor == tensorOf.end() ? "" : fmt::format(" data-line=\"{}\"", line.tensor),
                        programLine(line.text, TensorScope::Planned),
                        tensor == tensorOf.end() ? "" : place(*tensor->second));
  }
  return section("program", "Program",
                 "The planned program in its global view. Arcs lead from a tensor to its readers: "
                 "<span class=\"key aligned\">aligned</span> a rank holds what it needs, "
                 "<span class=\"key local\">local</span> it holds more, "
                 "<span class=\"key comm\">comm</span> it may lack elements.",
                 body + "</div></div>\n");
}

}  // namespace meshfuse
