#include "multidevice/mesh/device_mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <ranges>

#include "base/error.h"
#include "base/limits.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kHintWithout = 2;  // the smallest size with communication

// x, y, z, 3, 4, ...
std::string letterOrNumber(int64_t axisFromLast) {
  return axisFromLast >= 0 && axisFromLast < 3 ? std::string(1, "xyz"[axisFromLast]) : std::to_string(axisFromLast);
}

bool isDigits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// 0 if the text is not a number of this type.
template <class Number>
Number numberIn(std::string_view text) {
  Number value = 0;
  return isDigits(text) && std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() ? value : 0;
}

// Names occur in expressions and in the text form of a fusion, so i0, T0, S0 and some keywords are reserved.
void checkAxisName(std::string_view name) {
  bool identifier = !name.empty() && !isDigits(name.substr(0, 1)) &&
                    std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  bool reserved = name == "inf" || name == "nan" || name == "true" || name == "false" ||
                  (identifier && (name[0] == 'i' || name[0] == 'T' || name[0] == 'S') && isDigits(name.substr(1)));
  check(identifier && !reserved,
        "[mesh] \"{}\" cannot name an axis; use letters, digits and _, and none of inf, nan, true, false, i0, T0, S0",
        name);
}

void checkDevices(const std::vector<int64_t>& ids) {
  std::vector<int64_t> sorted = ids;
  std::ranges::sort(sorted);
  const int64_t wrong = sorted.empty() ? 0 : sorted.front() < 0 ? sorted.front() : sorted.back();
  check(wrong >= 0 && wrong < kMostDevices, "[mesh] device ids are ranks, 0 to {}; got {}", kMostDevices - 1, wrong);
  auto repeated = std::ranges::adjacent_find(sorted);
  if (repeated != sorted.end()) {
    throwUserError(
        fmt::format("[mesh] device {} is listed twice in [{}]; list each rank once", *repeated, fmt::join(ids, ", ")));
  }
}

void checkSize(const DeviceMesh::Axis& axis) {
  const int64_t size = axis.size.value_or(1);
  check(size >= 1 && size <= kMostDevices, "[mesh] axis {} has size {}; a mesh axis has 1 to {} devices", axis.name,
        size, kMostDevices);
}

// The devices of axes whose sizes are known; each size has been checked.
int64_t countDevices(const std::vector<DeviceMesh::Axis>& axes) {
  int64_t count = 1;
  for (const DeviceMesh::Axis& axis : axes) {
    count *= axis.size.value_or(1);
    check(count <= kMostDevices, "[mesh] the axes up to {} have {} devices; expected at most {} in a mesh", axis.name,
          count, kMostDevices);
  }
  return count;
}

std::vector<int64_t> countFromZero(int64_t n) {
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<DeviceMesh::Axis> unnamedAxes(const std::vector<int64_t>& shape) {
  std::vector<DeviceMesh::Axis> axes;
  for (int64_t k = 0; k < std::ssize(shape); k++) {
    const int64_t fromLast = std::ssize(shape) - 1 - k;
    axes.emplace_back((fromLast < 3 ? "" : "d") + letterOrNumber(fromLast), shape[k]);
  }
  return axes;
}

}  // namespace

std::string ParallelType::toString() const {
  switch (kind_) {
    case Kind::Serial:
      return "Serial";
    case Kind::Stream:
      return "Stream";
    case Kind::Device:
      break;
  }
  const std::string name = "DID" + letterOrNumber(axis_);
  return isPart() ? fmt::format("{}:{}:{}", name, pre_, size_) : name;
}

std::optional<ParallelType> parseParallelType(std::string_view text) {
  using P = ParallelType;
  for (const P type : {P::Serial, P::Stream, P::DIDx, P::DIDy, P::DIDz}) {
    if (text == type.toString()) {
      return type;
    }
  }
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const std::optional<ParallelType> whole = parseParallelType(text.substr(0, colon));
    const size_t next = text.find(':', colon + 1);
    if (!whole || !whole->isDevice() || next == std::string_view::npos) {
      return std::nullopt;
    }
    const int64_t pre = numberIn<int64_t>(text.substr(colon + 1, next - colon - 1));
    const int64_t size = numberIn<int64_t>(text.substr(next + 1));
    return pre > 0 && size > 0 ? std::optional(P::device(whole->axisFromLast(), pre, size)) : std::nullopt;
  }
  const int64_t axis = text.starts_with("DID") ? numberIn<int64_t>(text.substr(3)) : 0;
  return axis >= 3 ? std::optional(P::device(axis)) : std::nullopt;
}

DeviceMesh::DeviceMesh(std::vector<int64_t> ids) : DeviceMesh(ids, {std::ssize(ids)}) {}

DeviceMesh::DeviceMesh(std::vector<int64_t> ids, std::vector<int64_t> shape)
    : DeviceMesh(create(unnamedAxes(shape), std::move(ids))) {}

DeviceMesh DeviceMesh::createForShape(std::vector<int64_t> shape) { return create(unnamedAxes(shape)); }

DeviceMesh DeviceMesh::create(std::vector<Axis> axes) {
  if (!std::ranges::all_of(axes, [](const Axis& axis) { return axis.size.has_value(); })) {
    return create(std::move(axes), {});
  }
  std::ranges::for_each(axes, checkSize);
  const int64_t count = countDevices(axes);
  return create(std::move(axes), countFromZero(count));
}

DeviceMesh DeviceMesh::create(std::vector<Axis> axes, std::vector<int64_t> ids) {
  check(!axes.empty(), "[mesh] a mesh needs at least one axis; got none");
  checkDevices(ids);
  Grid grid;
  std::ranges::for_each(axes, checkSize);
  const int64_t count = countDevices(axes);
  bool symbolic = false;
  std::string shape;
  for (const Axis& axis : axes) {
    checkAxisName(axis.name);
    check(!meshfuse::contains(grid.names, axis.name), "[mesh] two axes are named {}; give each axis a name of its own",
          axis.name);
    grid.names.push_back(axis.name);
    grid.sizes.push_back(axis.size ? IntExpr(*axis.size) : IntExpr::symbol(axis.name, {.lower = 1}));
    symbolic |= !axis.size;
    shape += fmt::format("{}{}", shape.empty() ? "" : " x ", axis.size ? fmt::format("{}", *axis.size) : axis.name);
  }
  check(symbolic ? ids.empty() : std::ssize(ids) == count, "[mesh] {} device ids for a mesh of {}; {}", ids.size(),
        shape, symbolic ? "give ids once every axis has a size" : "the product of the shape must be the number of ids");
  grid.hints.resize(grid.names.size());
  grid.ids = std::move(ids);
  DeviceMesh mesh;
  mesh.grid_ = std::make_shared<const Grid>(std::move(grid));
  return mesh;
}

const DeviceMesh::Grid& DeviceMesh::grid() const {
  static const Grid none;
  return grid_ ? *grid_ : none;
}

DeviceMesh DeviceMesh::hint(const MeshSizes& sizes) const {
  if (sizes.empty()) {
    return *this;
  }
  Grid hinted = grid();
  for (const auto& [name, size] : sizes) {
    const int64_t position = axisOf(axis(name));
    check(!hinted.sizes[position].isConst(), "[mesh] axis {} has size {}; only an axis of symbolic size takes a hint",
          name, hinted.sizes[position].toString());
    check(size >= 1 && size <= kMostDevices, "[mesh] the hint for axis {} is {}; a mesh axis has 1 to {} devices", name,
          size, kMostDevices);
    hinted.hints[position] = size;
  }
  DeviceMesh mesh;
  mesh.grid_ = std::make_shared<const Grid>(std::move(hinted));
  return mesh;
}

DeviceMesh DeviceMesh::bind(const MeshSizes& sizes) const {
  if (!isSymbolic()) {
    return *this;
  }
  std::vector<Axis> axes;
  MeshSizes open;
  for (int64_t k = 0; k < std::ssize(grid().names); k++) {
    Axis& axis = axes.emplace_back(grid().names[k]);
    const auto given = sizes.find(axis.name);
    if (grid().sizes[k].isConst()) {
      axis.size = grid().sizes[k].constValue();
    } else if (given != sizes.end()) {
      axis.size = given->second;
    } else if (grid().hints[k] > 0) {
      open[axis.name] = grid().hints[k];
    }
  }
  return create(std::move(axes)).hint(open);
}

bool DeviceMesh::isSymbolic() const {
  return std::ranges::any_of(grid().sizes, [](const IntExpr& size) { return !size.isConst(); });
}

int64_t DeviceMesh::hintSize(int64_t axis) const {
  return grid().sizes.at(axis).isConst() ? grid().sizes[axis].constValue()
         : grid().hints[axis] > 0        ? grid().hints[axis]
                                         : kHintWithout;
}

std::vector<int64_t> DeviceMesh::axisSizes() const { return mapped(grid().sizes, &IntExpr::constValue); }

int64_t DeviceMesh::teamSize(const std::vector<int64_t>& axes) const {
  return productOf(axes, [&](int64_t axis) { return axisSize(axis).constValue(); });
}

int64_t DeviceMesh::numDevices() const {
  if (isSymbolic()) {
    throwInternalError(
        fmt::format("[mesh] the number of devices of {} is not known before its sizes are bound", toString()));
  }
  return empty() ? 0 : productOf(grid().sizes, &IntExpr::constValue);
}

int64_t DeviceMesh::axisOf(ParallelType type) const {
  if (!type.isDevice()) {
    throwUserError(fmt::format("[mesh] {} is not a mesh axis; use DIDx, DIDy or DIDz", type.toString()));
  }
  int64_t axis = numAxes() - 1 - type.axisFromLast();
  if (axis < 0 || axis >= numAxes()) {
    const std::string all = joined(std::views::iota(int64_t{0}, numAxes()), ", ", [&](int64_t k) {
      return fmt::format("{} ({})", typeOf(k).toString(), axisName(k));
    });
    throwUserError(
        fmt::format("[mesh] {} needs a mesh of at least {} axes, {} has {}; give the mesh more axes or bind one of {}",
                    type.toString(), type.axisFromLast() + 1, toString(), numAxes(), all.empty() ? "none" : all));
  }
  return axis;
}

ParallelType DeviceMesh::axis(std::string_view name) const {
  const auto position = positionIn(grid().names, name);
  if (position == numAxes()) {
    throwUserError(fmt::format("[mesh] no axis is named {}; there are {}", name,
                               grid().names.empty() ? "none" : joined(grid().names, ", ")));
  }
  return typeOf(position);
}

ParallelType DeviceMesh::axis(std::string_view name, int64_t pre, int64_t size) const {
  const int64_t position = axisOf(axis(name));
  const IntExpr& whole = grid().sizes[position];
  check(whole.isConst(), "[mesh] the size of axis {} is a symbol; only an axis of constant size can be cut in parts",
        name);
  check(pre >= 1 && size >= 1 && whole.constValue() % pre == 0 && whole.constValue() / pre % size == 0,
        "[mesh] axis {} has size {}, got {} parts of {} parts each; give numbers whose product divides the size", name,
        whole.constValue(), pre, size);
  return typeOf(position, whole.constValue() / pre / size, size);
}

ParallelType DeviceMesh::typeOf(int64_t axis, int64_t below, int64_t size) const {
  const int64_t whole = axisSize(axis).constValue();
  if (below < 1 || size < 1 || whole % below != 0 || whole / below % size != 0) {
    throwInternalError(fmt::format(
        "[mesh] got a digit of size {} above {} of axis {} of {}; their product must divide the size of the axis", size,
        below, axis, toString()));
  }
  const ParallelType type = typeOf(axis);
  return size == whole ? type : ParallelType::device(type.axisFromLast(), whole / below / size, size);
}

IntExpr DeviceMesh::below(ParallelType type) const {
  return type.isPart() ? IntExpr(axisSize(axisOf(type)).constValue() / type.pre() / type.size()) : IntExpr(1);
}

bool DeviceMesh::overlap(ParallelType a, ParallelType b) const {
  if (!a.isDevice() || !b.isDevice() || a.axisFromLast() != b.axisFromLast()) {
    return false;
  }
  // one digit lies below another if its range, counted from the outermost digit, begins at or after the end of the other's range
  const auto isBelow = [](ParallelType x, ParallelType y) { return x.pre() % (y.pre() * y.size()) == 0; };
  return !a.isPart() || !b.isPart() || (!isBelow(a, b) && !isBelow(b, a));
}

std::vector<ParallelType> DeviceMesh::freeInstead(ParallelType a, ParallelType b,
                                                  std::vector<ParallelType> bound) const {
  if (a.isPart() != b.isPart()) {
    bound.erase(std::find(bound.begin(), bound.end(), a.isPart() ? b : a));
  }
  std::vector<ParallelType> free;
  for (int64_t axis = 0; axis < numAxes(); axis++) {
    const ParallelType whole = typeOf(axis);
    std::vector<std::pair<int64_t, int64_t>> taken;  // ranges (begin, end), counted from the outermost digit
    for (const ParallelType type : bound) {
      if (overlap(type, whole)) {
        taken.emplace_back(type.pre(), type.pre() * type.size());
      }
    }
    if (taken.empty()) {
      free.push_back(whole);
      continue;
    }
    if (!axisSize(axis).isConst() || meshfuse::contains(bound, whole)) {
      continue;
    }
    std::ranges::sort(taken);
    taken.emplace_back(axisSize(axis).constValue(), 0);
    int64_t at = 1;
    for (const auto& [begin, end] : taken) {
      if (begin > at && begin % at == 0 && begin <= axisSize(axis).constValue()) {
        const ParallelType part = ParallelType::device(whole.axisFromLast(), at, begin / at);
        if (std::ranges::none_of(bound, [&](ParallelType t) { return overlap(t, part); })) {
          free.push_back(part);
        }
      }
      at = std::max(at, end);
    }
  }
  return free;
}

int64_t DeviceMesh::indexOf(int64_t rank) const {
  const int64_t position = positionIn(grid().ids, rank);
  return position == std::ssize(grid().ids) ? -1 : position;
}

std::vector<int64_t> DeviceMesh::coordinates(int64_t rank) const {
  int64_t index = indexOf(rank);
  if (index < 0) {
    throwInternalError(fmt::format("[mesh] rank {} is not in {}", rank, toString()));
  }
  std::vector<int64_t> result(grid().sizes.size());
  for (int64_t k = std::ssize(grid().sizes) - 1; k >= 0; k--) {
    int64_t size = grid().sizes[k].constValue();
    result[k] = index % size;
    index /= size;
  }
  return result;
}

int64_t DeviceMesh::at(const std::vector<int64_t>& coordinates) const {
  if (coordinates.size() != grid().sizes.size()) {
    throwInternalError(
        fmt::format("[mesh] got {} coordinates for {}; expected one for each axis", coordinates.size(), toString()));
  }
  int64_t index = 0;
  for (int64_t k = 0; k < std::ssize(grid().sizes); k++) {
    int64_t size = grid().sizes[k].constValue();
    if (coordinates[k] < 0 || coordinates[k] >= size) {
      throwInternalError(fmt::format("[mesh] coordinate {} is out of range for axis {} of {}", coordinates[k],
                                     grid().names[k], toString()));
    }
    index = index * size + coordinates[k];
  }
  return grid().ids.at(index);
}

std::vector<int64_t> DeviceMesh::team(int64_t rank, const std::vector<int64_t>& axes) const {
  std::vector<int64_t> position = coordinates(rank);
  std::vector<int64_t> ranks;
  const int64_t count = teamSize(axes);
  ranks.reserve(count);
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i;
    for (int64_t k = std::ssize(axes) - 1; k >= 0; k--) {
      int64_t size = axisSize(axes[k]).constValue();
      position[axes[k]] = rest % size;
      rest /= size;
    }
    ranks.push_back(at(position));
  }
  return ranks;
}

std::string DeviceMesh::toString() const {
  std::string text;
  for (int64_t k = 0; k < std::ssize(grid().names); k++) {
    text += fmt::format("{}{}: {}", k == 0 ? "" : ", ", grid().names[k], grid().sizes[k].toString());
    text += grid().hints[k] > 0 ? fmt::format(" hint {}", grid().hints[k]) : "";
  }
  return fmt::format("{{{}}}[{}]", text, fmt::join(grid().ids, ", "));
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) { return a.grid_ == b.grid_ || a.grid() == b.grid(); }

bool haveSameDevices(const DeviceMesh& a, const DeviceMesh& b) {
  const auto sorted = [](std::vector<int64_t> ids) {
    std::ranges::sort(ids);
    return ids;
  };
  return a == b || sorted(a.devices()) == sorted(b.devices());
}

}  // namespace meshfuse
