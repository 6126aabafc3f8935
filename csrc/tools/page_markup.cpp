#include "tools/page_markup.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>

#include "tools/terminal.h"

namespace meshfuse {

namespace {

struct Escape {
  char character;
  std::string_view text;
};
constexpr Escape kEscapes[] = {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}};

bool isWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool isNumber(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto* escape = std::ranges::find(kEscapes, c, &Escape::character);
    if (escape != std::end(kEscapes)) {
      result += escape->text;
    } else {
      // XML has no other control characters
      result += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return result;
}

std::string shortBytes(double bytes) {
  const auto [value, unit] = inUnits(bytes);
  return fmt::format("{:.{}f} {}", value, unit == "B" || value >= 100 ? 0 : 1, unit);
}

std::string bytesMarkup(int64_t bytes) {
  return fmt::format("<span class=\"bytes\" title=\"{} bytes\">{}</span>", bytes,
                     shortBytes(static_cast<double>(bytes)));
}

std::string withoutMesh(std::string_view sharding) { return escaped(sharding.substr(0, sharding.find(" on {"))); }

std::string shortTime(int64_t nanoseconds) {
  const auto ns = static_cast<double>(nanoseconds);
  return ns < 1e3   ? fmt::format("{} ns", nanoseconds)
         : ns < 1e6 ? fmt::format("{:.1f} \u00b5s", ns / 1e3)
         : ns < 1e9 ? fmt::format("{:.2f} ms", ns / 1e6)
                    : fmt::format("{:.2f} s", ns / 1e9);
}

std::string rankList(std::span<const int64_t> ranks) {
  std::string text;
  for (int64_t k = 0; k < std::ssize(ranks);) {
    size_t end = k + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      end++;
    }
    text += text.empty() ? "" : ", ";
    text += end - k > 2 ? fmt::format("{}\u2013{}", ranks[k], ranks[end - 1]) : std::to_string(ranks[k]);
    k = end - k > 2 ? end : k + 1;
  }
  return text;
}

std::string withTensors(std::string_view text, TensorScope scope) {
  std::string result;
  size_t plain = 0;
  for (int64_t k = 0; k < std::ssize(text); k++) {
    if (text[k] != 'T' || (k > 0 && isWord(text[k - 1])) || k + 1 == std::ssize(text) || !isNumber(text[k + 1])) {
      continue;
    }
    size_t end = k + 1;
    while (end < text.size() && isNumber(text[end])) {
      end++;
    }
    if (end < text.size() && isWord(text[end])) {
      continue;
    }
    const std::string_view tensor = text.substr(k, end - k);
    result += escaped(text.substr(plain, k - plain));
    result += scope == TensorScope::Planned ? fmt::format("<a class=\"t\" data-t=\"{0}\" href=\"#{0}\">{0}</a>", tensor)
                                            : fmt::format("<span class=\"t\" data-t=\"r{0}\">{0}</span>", tensor);
    plain = end;
    k = end - 1;
  }
  return result + escaped(text.substr(plain));
}

std::string programLine(std::string_view line, TensorScope scope) {
  const size_t equals = line.find(" = ");
  const size_t open = equals == std::string_view::npos ? equals : line.find('(', equals);
  const size_t type = line.rfind(") : ");
  if (open == std::string_view::npos || type == std::string_view::npos) {
    return fmt::format("<span class=\"quiet\">{}</span>", withTensors(line, scope));
  }
  return fmt::format("{}<b>{}</b>{}<span class=\"quiet\">{}</span>", withTensors(line.substr(0, equals + 3), scope),
                     escaped(line.substr(equals + 3, open - equals - 3)),
                     withTensors(line.substr(open, type + 1 - open), scope), withTensors(line.substr(type + 1), scope));
}

std::string figure(std::string_view what, const std::string& value, std::string_view detail) {
  return fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span><small>{}</small></div>\n", value, what, detail);
}

std::string counted(size_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string section(std::string_view id, std::string_view title, std::string_view lead, std::string_view body) {
  return fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"lead\">{}</p>\n{}</section>\n", id, title, lead,
                     body);
}

}  // namespace meshfuse
