// A run as rows of spans, one group of rows for each rank.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/ranges.h"
#include "tools/page_markup.h"
#include "tools/page_sections.h"

namespace meshfuse {

namespace {

struct Window {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  double percent(int64_t ns) const {
    return 100 * static_cast<double>(ns) / static_cast<double>(std::max<int64_t>(1, end - begin));
  }
};

std::string spanMarkup(const TraceSpan& s, const Window& window) {
  std::string title = fmt::format("{}: {}", s.name, shortTime(s.end - s.begin));
  if (s.row == TraceRow::Collectives) {
    title += fmt::format(", {} bytes received{}", s.bytes, s.queue > 0 ? fmt::format(", queue {}", s.queue) : "");
  }
  return fmt::format("<i class=\"{}\" title=\"{}\" style=\"left:{:.4f}%;width:{:.4f}%\">{}</i>", name(s.row),
                     escaped(title), window.percent(s.begin - window.begin), window.percent(s.end - s.begin),
                     s.row == TraceRow::Waits ? "" : escaped(s.name));
}

// A row of a rank: the kernels, the collectives of a queue, or the waits.
struct Row {
  TraceRow kind = TraceRow::Kernels;
  int64_t queue = 0;  // Collectives
  bool has(const TraceSpan& s) const { return s.row == kind && (kind != TraceRow::Collectives || s.queue == queue); }
};

// The same for all ranks.
std::vector<Row> rowsOf(const Timeline& timeline) {
  std::set<int64_t> queues;
  for (const TraceSpan& s : timeline | std::views::join) {
    if (s.row == TraceRow::Collectives) {
      queues.insert(s.queue);
    }
  }
  std::vector<Row> rows{{TraceRow::Kernels}};
  append(rows, mapped(queues, [](int64_t queue) { return Row{TraceRow::Collectives, queue}; }));
  rows.push_back({TraceRow::Waits});
  return rows;
}

// At most eight round times, for the axis.
std::string ticks(const Window& window) {
  const auto length = static_cast<double>(std::max<int64_t>(1, window.end - window.begin));
  double step = std::pow(10, std::floor(std::log10(length / 4)));
  while (length / step > 8) {
    step *= length / step > 16 ? 5 : 2;
  }
  std::string text = "<div class=\"ticks\">";
  for (double t = 0; t <= 0.95 * length; t += step) {
    text += fmt::format("<span style=\"left:{:.3f}%\">{}</span>", 100 * t / length, shortTime(static_cast<int64_t>(t)));
  }
  return text + "</div>\n";
}

}  // namespace

std::string timelineSection(const Timeline& timeline, std::string_view lead, const std::vector<std::string>& groups) {
  Window window;
  for (const TraceSpan& s : timeline | std::views::join) {
    window.begin = std::min(window.begin, s.begin);
    window.end = std::max(window.end, s.end);
  }
  if (timeline.empty()) {
    return section("timeline", "Timeline",
                   "Nothing has run: <code>explain --run --html</code> adds a run on virtual ranks.", "");
  }
  const std::vector<Row> rows = rowsOf(timeline);
  std::string body =
      fmt::format(R"(<div class="card timeline" style="--rows:{}">)", rows.size()) +
      R"(<div class="zoom"><label>zoom <input type="range" id="zoom" min="0" max="6" step="0.1" value="0"/>)"
      R"(</label></div><div class="ranks">)";
  for (const int64_t rank : indices(timeline)) {
    body += fmt::format("<div class=\"rank\"><span class=\"dot k{}\"></span>{}</div>", rank,
                        groups.empty() ? fmt::format("rank {}", rank) : escaped(groups[rank]));
  }
  body += "</div><div class=\"window\"><div class=\"wide\" id=\"wide\">\n";
  for (const std::vector<TraceSpan>& spans : timeline) {
    body += "<div class=\"rows\">";
    for (const Row& row : rows) {
      body += "<div class=\"row\">";
      for (const TraceSpan& s : spans) {
        body += row.has(s) ? spanMarkup(s, window) : "";
      }
      body += "</div>";
    }
    body += "</div>\n";
  }
  body += ticks(window) + "</div></div></div>\n";
  return section(
      "timeline", "Timeline",
      fmt::format("{}, {} long: <span class=\"key kernel\">kernels</span> "
                  "<span class=\"key comm\">collectives</span> <span class=\"key wait\">waits for peers</span>",
                  lead, shortTime(window.end - window.begin)),
      body);
}

}  // namespace meshfuse
