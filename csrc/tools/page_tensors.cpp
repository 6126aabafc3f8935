// Tensors with their tiles, and the edges between them.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "tools/page_markup.h"
#include "tools/page_sections.h"
#include "tools/page_tiles.h"

namespace meshfuse {

namespace {

std::string card(const ExplainedTensor& t) {
  std::string picture = tensorPicture(t, {.width = 208, .height = 104});
  if (picture.empty()) {
    picture = fmt::format("<span class=\"quiet\">{}</span>",
                          t.mesh.empty() ? "whole on every rank" : "parts too fine to draw");
  }
  const std::string role = (t.label.empty() ? "" : t.label + ": ") + (t.madeBy == "input" ? "input"
                                                                      : t.isOutput        ? t.madeBy + ", output"
                                                                                          : t.madeBy);
  const std::string sums =
      t.sums.empty() ? "" : "<div class=\"sum\">\u03a3 terms of a sum over " + escaped(joined(t.sums, ", ")) + "</div>";
  return fmt::format(
      R"(<article class="card tensor-card" id="{0}" data-t="{0}"><header><b>{0}</b><span class="quiet">{1}</span></header>)"
      R"(<div class="picture">{2}</div>{3}<dl><dt>global</dt><dd>{4}[{5}]</dd><dt>a rank</dt><dd>[{6}]</dd>)"
      R"(<dt>lives</dt><dd><span class="chip" title="{7}">{8}</span></dd>{9}</dl></article>)"
      "\n",
      t.name, escaped(role), picture, sums, name(t.dtype), fmt::join(t.sizes, ", "), fmt::join(t.localSizes, ", "),
      escaped(t.sharding), withoutMesh(t.sharding),
      t.reason.empty() ? "" : "<dt>why</dt><dd>" + escaped(t.reason) + "</dd>");
}

std::string planMarkup(const ExplainedEdge& e) {
  if (e.moves.empty()) {
    return "";
  }
  std::string text = "<ol class=\"plan\">";
  int64_t total = 0;
  for (int64_t k = 0; k < std::ssize(e.moves); k++) {
    const int64_t bytes = k < std::ssize(e.moveBytes) ? e.moveBytes[k] : 0;
    total += bytes;
    text += fmt::format("<li><code>{}</code> {}</li>", escaped(e.moves[k]),
                        bytes == 0 ? std::string("<span class=\"bytes\">nothing moves</span>") : bytesMarkup(bytes));
  }
  text += "</ol>";
  if (total > 0) {
    text +=
        fmt::format("<span class=\"quiet\">{} in all; no plan receives less than {}; a rank holds at most {}</span>",
                    bytesMarkup(total), shortBytes(e.leastBytes), shortBytes(static_cast<double>(e.stateBytes)));
  }
  return text;
}

}  // namespace

std::string tensorsSection(const Explanation& e) {
  return section(
      "tensors", "Tensors",
      "Which rank holds which part. A colour is a rank, as in the mesh; grey is whole on all of them. Tensors are "
      "drawn to their proportions, in the dims that are cut.",
      "<div class=\"meshes\">" + joined(e.meshes, "", meshPicture) + "</div>\n<div class=\"tensors\">\n" +
          joined(e.tensors, "", card) + "</div>\n");
}

std::string edgesSection(const Explanation& e) {
  std::string body = "<div class=\"filters\">";
  for (const std::string_view relation : {"aligned", "local", "comm"}) {
    body += fmt::format(
        R"(<label class="key {0}"><input type="checkbox" checked="checked" data-show="{0}"/>{0} <b>{1}</b></label>)",
        relation, std::ranges::count(e.edges, relation, &ExplainedEdge::relation));
  }
  body +=
      "</div>\n<div class=\"card scroll\"><table class=\"edges\"><thead><tr><th>edge</th><th>op</th><th>relation</th>"
      "<th>reason and moves</th></tr></thead><tbody>\n";
  for (const ExplainedEdge& x : e.edges) {
    body += fmt::format(
        "<tr data-relation=\"{0}\"><td class=\"edge\">{1}<span class=\"quiet\"> \u2192 </span>{2}</td>"
        "<td><code>{3}</code></td><td><span class=\"badge {0}\">{0}</span></td><td>{4}{5}</td></tr>\n",
        x.relation, withTensors(x.from, TensorScope::Planned), withTensors(x.to, TensorScope::Planned), escaped(x.op),
        withTensors(x.reason, TensorScope::Planned), planMarkup(x));
  }
  return section("edges", "Edges",
                 "The elements that a rank holds, compared with those that it needs, for every operand of every op.",
                 body + "</tbody></table></div>\n");
}

}  // namespace meshfuse
