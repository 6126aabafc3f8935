// The steps of a rank, and the arena.
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/page_markup.h"
#include "tools/page_sections.h"

namespace meshfuse {

namespace {

std::string traffic(const ExplainedStep& s, int64_t most) {
  auto bar = [&](std::string_view what, int64_t bytes, const std::vector<std::string>& tensors) {
    const double share = most == 0 ? 0 : 100 * static_cast<double>(bytes) / static_cast<double>(most);
    return fmt::format(
        "<div class=\"flow\"><span class=\"quiet\">{}</span><span class=\"bar\"><span class=\"{}\" "
        "style=\"width:{:.2f}%\"></span></span>"
        "{}<span class=\"of\">{}</span></div>",
        what, what, share, bytesMarkup(bytes),
        withTensors(fmt::format("{}", fmt::join(tensors, ", ")), TensorScope::OfRank));
  };
  return bar("reads", s.bytesRead, s.reads) + bar("writes", s.bytesWritten, s.writes);
}

std::string stepMarkup(const ExplainedStep& s, size_t number, const ExplainedCommunication* c, int64_t most) {
  std::string text = fmt::format(
      "<article class=\"card step {0}\"><header><span class=\"number\">{1}</span><span class=\"badge "
      "{0}\">{0}</span><b>{2}</b>",
      s.kind, number,
      c == nullptr ? withTensors(s.name, TensorScope::OfRank)
                   : withTensors(c->kind + " " + c->tensor, TensorScope::OfRank));
  if (c != nullptr) {
    const std::vector<int64_t> team(c->team.begin(), c->team.end());
    text += fmt::format("<span class=\"quiet\">among ranks {}, {} received</span>", rankList(team),
                        bytesMarkup(c->bytesReceived));
  } else if (s.ops.size() > 1) {
    text += fmt::format("<span class=\"quiet\">{} ops fused</span>", s.ops.size());
  }
  text += "</header>\n";
  if (!s.text.empty()) {
    text += "<pre>";
    for (const std::string& line : s.text) {
      text += programLine(line, TensorScope::OfRank) + "\n";
    }
    text += "</pre>\n";
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
std::string arenaPicture(const Explanation& e, int steps) {
  constexpr double kWidth = 1000;
  constexpr double kHeight = 220;
  std::string text = fmt::format("<svg class=\"arena\" viewBox=\"-60 -8 {:.0f} {:.0f}\">\n", kWidth + 70, kHeight + 32);
  const double sx = kWidth / steps;
  const double sy = kHeight / static_cast<double>(e.arenaBytes);
  text += fmt::format("<rect class=\"frame\" x=\"0\" y=\"0\" width=\"{:.0f}\" height=\"{:.0f}\"></rect>\n", kWidth,
                      kHeight);
  text +=
      fmt::format("<text class=\"end\" x=\"-6\" y=\"10\">0</text><text class=\"end\" x=\"-6\" y=\"{:.0f}\">{}</text>\n",
                  kHeight, shortBytes(static_cast<double>(e.arenaBytes)));
  const int every = std::max(1, steps / 24);
  for (int k = 0; k < steps; k += every) {
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>", (k + 0.5) * sx, kHeight + 16, k);
  }
  for (size_t k = 0; k < e.buffers.size(); k++) {
    const ExplainedBuffer& b = e.buffers[k];
    if (b.place != "arena" || b.bytes == 0) {
      continue;
    }
    const double x = b.firstStep * sx;
    const double y = static_cast<double>(b.offset) * sy;
    const double w = (b.lastStep - b.firstStep + 1) * sx;
    const double h = std::max(1.0, static_cast<double>(b.bytes) * sy);
    text += fmt::format(
        "<g class=\"t\" data-t=\"r{}\"><title>{}: {} bytes at {}, steps {} to {}</title><rect class=\"buffer h{}\" "
        "x=\"{:.1f}\" y=\"{:.1f}\" "
        "width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\"></rect>",
        b.tensor, b.tensor, b.bytes, b.offset, b.firstStep, b.lastStep, k % 6, x + 1, y + 0.5, std::max(1.0, w - 2),
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
  for (size_t k = 0; k < e.steps.size(); k++) {
    const bool communicates = e.steps[k].kind == "communicate" && collective < e.communications.size();
    body += stepMarkup(e.steps[k], k, communicates ? &e.communications[collective++] : nullptr, most);
  }
  for (const std::string& remark : e.remarks) {
    body += fmt::format("<p class=\"remark\">{}</p>\n", withTensors(remark, TensorScope::Planned));
  }
  return section(
      "steps", "Steps of a rank",
      "What each rank does, on its local tensors, in order. Tensors have names of their own here. Received bytes are "
      "those of the busiest rank; of an all-reduce the mean.",
      body);
}

std::string memorySection(const Explanation& e) {
  int64_t arguments = 0;
  int64_t results = 0;
  int steps = 0;
  bool arena = false;
  for (const ExplainedBuffer& b : e.buffers) {
    arguments += b.place == "argument" ? b.bytes : 0;
    results += b.place == "result" ? b.bytes : 0;
    arena = arena || (b.place == "arena" && b.bytes > 0);
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
  if (arena && steps > 0 && e.arenaBytes > 0) {
    body += arenaPicture(e, steps);
  } else {
    body += "<p class=\"quiet\">No intermediate tensor needs memory.</p>\n";
  }
  return section(
      "memory", "Memory",
      fmt::format("Rank {} needs {} at most: arguments, results and one arena, in which tensors with disjoint "
                  "lifetimes share memory. Steps without views from left to right, offsets downwards.",
                  e.rank, bytesMarkup(e.peakBytes)),
      body + "</div>\n");
}

}  // namespace meshfuse
