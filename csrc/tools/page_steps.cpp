// The steps of a rank, and the arena.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "tools/page_markup.h"
#include "tools/page_sections.h"

namespace meshfuse {

namespace {

std::string traffic(const ExplainedStep& s, int64_t most) {
  auto bar = [&](std::string_view what, int64_t bytes, const std::vector<std::string>& tensors) {
    const double share = most == 0 ? 0 : 100 * static_cast<double>(bytes) / static_cast<double>(most);
    return fmt::format(R"(<div class="flow"><span class="quiet">{0}</span><span class="bar">)"
                       R"(<span class="{0}" style="width:{1:.2f}%"></span></span>{2}<span class="of">{3}</span></div>)",
                       what, share, bytesMarkup(bytes), withTensors(joined(tensors, ", "), TensorScope::OfRank));
  };
  return bar("reads", s.bytesRead, s.reads) + bar("writes", s.bytesWritten, s.writes);
}

std::string stepMarkup(const ExplainedStep& s, size_t number, const ExplainedCommunication* c, int64_t most) {
  std::string text = fmt::format(
      R"(<article class="card step {0}"><header><span class="number">{1}</span><span class="badge {0}">{0}</span><b>{2}</b>)",
      s.kind, number, withTensors(c == nullptr ? s.name : c->name() + " " + c->tensor, TensorScope::OfRank));
  if (c != nullptr) {
    text += fmt::format("<span class=\"quiet\">among ranks {}, {} received</span>",
                        rankList(std::vector<int64_t>(c->team.begin(), c->team.end())), bytesMarkup(c->bytesReceived));
  } else if (s.ops.size() > 1) {
    text += fmt::format("<span class=\"quiet\">{} ops fused</span>", s.ops.size());
  }
  text += "</header>\n";
  if (!s.text.empty()) {
    const auto lineOf = [](const std::string& line) { return programLine(line, TensorScope::OfRank) + "\n"; };
    text += "<pre>" + joined(s.text, "", lineOf) + "</pre>\n";
  }
  text += traffic(s, most);
  for (const std::string& join : s.joins) {
    text += fmt::format("<p class=\"why\"><b>joined:</b> {}</p>", withTensors(join, TensorScope::OfRank));
  }
  if (!s.boundary.empty()) {
    text += fmt::format("<p class=\"why\"><b>no larger:</b> {}</p>", withTensors(s.boundary, TensorScope::OfRank));
  }
  return text + "</article>\n";
}

// Buffers of the arena as rectangles: steps on the x axis, offsets on the y axis.
std::string arenaPicture(const Explanation& e, int64_t steps) {
  constexpr double kWidth = 1000;
  constexpr double kHeight = 220;
  const double sx = kWidth / steps;
  const double sy = kHeight / static_cast<double>(e.arenaBytes);
  std::string text = fmt::format("<svg class=\"arena\" viewBox=\"-60 -8 {:.0f} {:.0f}\">\n", kWidth + 70, kHeight + 32);
  text += fmt::format(R"(<rect class="frame" x="0" y="0" width="{:.0f}" height="{:.0f}"></rect>)"
                      "\n"
                      R"(<text class="end" x="-6" y="10">0</text><text class="end" x="-6" y="{:.0f}">{}</text>)"
                      "\n",
                      kWidth, kHeight, kHeight, shortBytes(static_cast<double>(e.arenaBytes)));
  const int64_t every = std::max<int64_t>(1, steps / 24);
  for (int64_t k = 0; k < steps; k += every) {
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>", (k + 0.5) * sx, kHeight + 16, k);
  }
  for (int64_t k = 0; k < std::ssize(e.buffers); k++) {
    const ExplainedBuffer& b = e.buffers[k];
    if (b.place != "arena" || b.bytes == 0) {
      continue;
    }
    const double x = b.firstStep * sx;
    const double y = static_cast<double>(b.offset) * sy;
    const double w = (b.lastStep - b.firstStep + 1) * sx;
    const double h = std::max(1.0, static_cast<double>(b.bytes) * sy);
    text += fmt::format(
        R"(<g class="t" data-t="r{0}"><title>{0}: {1} bytes at {2}, steps {3} to {4}</title>)"
        R"(<rect class="buffer h{5}" x="{6:.1f}" y="{7:.1f}" width="{8:.1f}" height="{9:.1f}" rx="2"></rect>)",
        b.tensor, b.bytes, b.offset, b.firstStep, b.lastStep, k % 6, x + 1, y + 0.5, std::max(1.0, w - 2),
        std::max(1.0, h - 1));
    if (h >= 14 && w >= 44) {
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + w / 2, y + h / 2 + 4, b.tensor);
    }
    text += "</g>\n";
  }
  return text + "</svg>\n";
}

}  // namespace

std::string stepsSection(const Explanation& e) {
  int64_t most = 0;
  for (const ExplainedStep& s : e.steps) {
    most = std::max({most, s.bytesRead, s.bytesWritten});
  }
  std::string body;
  size_t collective = 0;
  for (int64_t k = 0; k < std::ssize(e.steps); k++) {
    const bool communicates = e.steps[k].kind == "communicate" && collective < e.communications.size();
    body += stepMarkup(e.steps[k], k, communicates ? &e.communications[collective++] : nullptr, most);
  }
  body += joined(e.remarks, "", [](const std::string& remark) {
    return fmt::format("<p class=\"remark\">{}</p>\n", withTensors(remark, TensorScope::Planned));
  });
  return section(
      "steps", "Steps of a rank",
      "What each rank does, on its local tensors, in order. Tensors have names of their own here. Received bytes are "
      "those of the busiest rank; of an all-reduce the mean.",
      body);
}

std::string memorySection(const Explanation& e) {
  const auto bytesOf = [&](std::string_view place) {
    return sumOf(e.buffers, [&](const ExplainedBuffer& b) { return b.place == place ? b.bytes : 0; });
  };
  const int64_t arguments = bytesOf("argument");
  const int64_t results = bytesOf("result");
  int64_t steps = 0;
  for (const ExplainedBuffer& b : e.buffers) {
    steps = std::max(steps, b.lastStep + 1);
  }
  const auto all = static_cast<double>(std::max<int64_t>(1, arguments + results + e.arenaBytes));
  std::string body = "<div class=\"card\"><div class=\"split\">";
  const std::pair<std::string_view, int64_t> parts[] = {
      {"arguments", arguments}, {"results", results}, {"arena", e.arenaBytes}};
  for (const auto& [what, bytes] : parts) {
    if (bytes > 0) {
      body += fmt::format("<div class=\"{}\" style=\"flex-grow:{:.4f}\" title=\"{} bytes\"><b>{}</b> {}</div>", what,
                          static_cast<double>(bytes) / all, bytes, what, shortBytes(static_cast<double>(bytes)));
    }
  }
  body += "</div>\n";
  body += bytesOf("arena") > 0 && steps > 0 && e.arenaBytes > 0
              ? arenaPicture(e, steps)
              : "<p class=\"quiet\">No intermediate tensor needs memory.</p>\n";
  return section(
      "memory", "Memory",
      fmt::format("Rank {} needs {} at most: arguments, results and one arena, in which tensors with disjoint "
                  "lifetimes share memory. Steps without views from left to right, offsets downwards.",
                  e.rank, bytesMarkup(e.peakBytes)),
      body + "</div>\n");
}

}  // namespace meshfuse
