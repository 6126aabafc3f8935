#include "tools/page_tiles.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ranges.h"
#include "tools/page_markup.h"

namespace meshfuse {

namespace {

constexpr size_t kMostPieces = 1500;
constexpr int64_t kHues[] = {212, 28, 152, 338, 265, 52, 185, 5};

struct Piece {
  int64_t row0 = 0;
  int64_t row1 = 1;
  int64_t col0 = 0;
  int64_t col1 = 1;
  friend auto operator<=>(const Piece&, const Piece&) = default;
};

std::vector<std::pair<int64_t, int64_t>> rangesOf(const ExplainedTile& tile, int64_t dim) {
  return dim < 0 ? std::vector<std::pair<int64_t, int64_t>>{{0, 1}} : tile.dims[dim].list;
}

// The dims on the x and y axes: sharded dims first, then the last ones; -1 if there is none.
std::pair<int64_t, int64_t> drawnDims(const ExplainedTensor& t, const std::vector<int64_t>& sizes) {
  const int64_t dims = std::ssize(sizes);
  std::vector<int64_t> chosen;
  for (int64_t k = 0; k < dims && chosen.size() < 2; k++) {
    const std::vector<std::pair<int64_t, int64_t>> all{{0, sizes[k]}};
    if (std::ranges::any_of(t.tiles, [&](const ExplainedTile& tile) { return rangesOf(tile, k) != all; })) {
      chosen.push_back(k);
    }
  }
  for (int64_t k = dims - 1; k >= 0 && chosen.size() < 2; k--) {
    if (!contains(chosen, k)) {
      chosen.push_back(k);
    }
  }
  std::ranges::sort(chosen);
  return {chosen.size() < 2 ? -1 : chosen[0], chosen.empty() ? -1 : chosen.back()};
}

// The pieces of a tensor with the ranks that hold them; empty if there are too many.
std::map<Piece, std::vector<int64_t>> piecesOf(const ExplainedTensor& t, int64_t rows, int64_t cols) {
  std::map<Piece, std::vector<int64_t>> pieces;
  for (const ExplainedTile& tile : t.tiles) {
    const bool cut = std::ranges::any_of(tile.dims, [](const ExplainedRanges& r) { return r.more; });
    if (cut || pieces.size() > kMostPieces) {
      return {};
    }
    for (const auto& [row0, row1] : rangesOf(tile, rows)) {
      for (const auto& [col0, col1] : rangesOf(tile, cols)) {
        pieces[{row0, row1, col0, col1}].push_back(tile.rank);
      }
    }
  }
  return pieces;
}

// From rows and columns of a tensor to pixels.
struct Scale {
  double left;
  double top;
  double perColumn;
  double perRow;
};

std::string pieceMarkup(const Piece& p, const std::vector<int64_t>& ranks, const Scale& scale, std::string_view shade,
                        const PictureOptions& options) {
  const double width = static_cast<double>(p.col1 - p.col0) * scale.perColumn;
  const double height = static_cast<double>(p.row1 - p.row0) * scale.perRow;
  const double left = scale.left + static_cast<double>(p.col0) * scale.perColumn;
  const double top = scale.top + static_cast<double>(p.row0) * scale.perRow;
  const std::string held = rankList(ranks);
  std::string text = fmt::format(
      R"(<g><title>rank{} {}: [{}, {}) x [{}, {})</title><rect class="piece {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"></rect>)",
      ranks.size() == 1 ? "" : "s", held, p.row0, p.row1, p.col0, p.col1,
      shade.empty() ? fmt::format("k{}", ranks[0]) : std::string(shade), left, top, width, height);
  const std::string label = shade == "all" && ranks.size() > 1 ? "all" : shade == "terms" ? "\u03a3 " + held : held;
  if (options.labels && height >= 11 && width >= 4 + 6 * static_cast<double>(std::min<size_t>(label.size(), 12))) {
    text += fmt::format(R"(<text x="{:.1f}" y="{:.1f}">{}</text>)", left + width / 2, top + height / 2 + 3.5, label);
  }
  return text + "</g>";
}

}  // namespace

std::string rankColours(const Explanation& e) {
  std::set<int64_t> ranks;
  for (const ExplainedMesh& m : e.meshes) {
    ranks.insert(m.ranks.begin(), m.ranks.end());
  }
  ranks.insert(e.rank);
  const auto n = std::ssize(ranks);
  std::string text;
  int64_t k = 0;
  for (const int64_t r : ranks) {
    text += fmt::format(".k{} {{ --h: {} }}\n", r, n <= 8 ? kHues[k] : 212 + 360 * k / n);
    k++;
  }
  return text;
}

std::string meshPicture(const ExplainedMesh& mesh) {
  constexpr double kCell = 26;
  const int64_t across = std::max<int64_t>(1, mesh.axes.empty() ? 1 : mesh.axes.back().size);
  const auto down = std::ssize(mesh.ranks) / across;
  const std::string axes = joined(mesh.axes, " \u00d7 ",
                                  [](const ExplainedAxis& a) { return fmt::format("{} {}", escaped(a.name), a.size); });
  const double width = static_cast<double>(across) * kCell;
  const double height = static_cast<double>(down) * kCell;
  std::string text = fmt::format(
      R"(<figure class="mesh"><svg width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)", width, height);
  for (int64_t k = 0; k < std::ssize(mesh.ranks); k++) {
    const double x = static_cast<double>(k % across) * kCell;
    const double y = static_cast<double>(k / across) * kCell;
    text += fmt::format(R"(<rect class="piece k{0}" x="{1:.0f}" y="{2:.0f}" width="{3:.0f}" height="{3:.0f}" rx="4">)"
                        R"(</rect><text x="{4:.0f}" y="{5:.1f}">{0}</text>)",
                        mesh.ranks[k], x + 1, y + 1, kCell - 2, x + kCell / 2, y + kCell / 2 + 3.5);
  }
  return text + fmt::format("</svg><figcaption>{}</figcaption></figure>", axes);
}

std::string tensorPicture(const ExplainedTensor& t, const PictureOptions& options) {
  std::vector<int64_t> sizes = t.sizes;
  if (t.sumsDim >= 0) {
    sizes.erase(sizes.begin() + t.sumsDim);
  }
  const auto [rows, cols] = drawnDims(t, sizes);
  const auto pieces = piecesOf(t, rows, cols);
  const auto down = static_cast<double>(rows < 0 ? 1 : sizes[rows]);
  const auto across = static_cast<double>(cols < 0 ? 1 : sizes[cols]);
  if (pieces.empty() || down <= 0 || across <= 0) {
    return "";
  }
  const double depth = t.sums.empty() ? 0 : 6;  // partial sums are drawn as a stack
  const double least = std::min(18.0, options.height - depth);
  double w = options.width - depth;
  double h = std::clamp(w * down / across, least, options.height - depth);
  w = std::clamp(h * across / down, std::min(w, options.labels ? 40.0 : 14.0), w);
  h = rows < 0 ? std::min(h, 22.0) : h;
  std::string text =
      fmt::format(R"(<svg class="tensor" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)",
                  w + depth + 2, h + depth + 2);
  for (double d = depth; d > 0; d -= 3) {
    text += fmt::format(R"(<rect class="stacked" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"></rect>)", 1 + d,
                        1 + depth - d, w, h);
  }
  for (const auto& [piece, ranks] : pieces) {
    const bool everywhere = pieces.size() == 1 && ranks.size() == t.tiles.size();
    const std::string_view shade = !t.sums.empty() ? "terms" : everywhere ? "all" : "";
    text += pieceMarkup(piece, ranks, {1, 1 + depth, w / across, h / down}, shade, options);
  }
  return text + "</svg>";
}

}  // namespace meshfuse
