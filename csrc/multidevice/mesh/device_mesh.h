// DeviceMesh: ranks arranged in a grid with named axes.
//
// The first axis is the outermost. DIDx is the last axis, DIDy the one before, DIDz the one before that; axes may also have
// names, and sizes may be symbols until the mesh is bound to devices.
//
//   DeviceMesh({0, 1, 2, 3})                  one axis of 4
//   DeviceMesh({0, 1, 2, 3}, {2, 2})          ranks [[0, 1], [2, 3]], axes y and x
//   DeviceMesh::create({{"dp", 2}, {"tp"}})   named axes, the second of symbolic size
//
// A symbolic size is a symbol with the name of the axis; decisions made before the size is known use its hint. A loop may also be
// bound to a part of an axis. If tp has size 8, mesh.axis("tp", 1, 2) is the half of the axis that a rank is in, and mesh.axis("tp", 2, 4)
// is the position of the rank within its half.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

// The binding of a loop dim. Device axes count from the last axis of the mesh: DIDx is 0.
class ParallelType {
 public:
  enum class Kind : uint8_t { Serial, Stream, Device };

  constexpr ParallelType() = default;
  static constexpr ParallelType device(int64_t axisFromLast) { return {Kind::Device, axisFromLast}; }
  // A part of an axis: the axis is divided into `pre` equal parts and each of these into `size` equal parts; the binding is the number of a
  // rank's smaller part within its larger part.
  static constexpr ParallelType device(int64_t axisFromLast, int64_t pre, int64_t size) {
    return {Kind::Device, axisFromLast, pre, size};
  }

  static const ParallelType Serial;
  static const ParallelType Stream;
  static const ParallelType DIDx;
  static const ParallelType DIDy;
  static const ParallelType DIDz;

  constexpr Kind kind() const { return kind_; }
  constexpr bool isDevice() const { return kind_ == Kind::Device; }
  constexpr int64_t axisFromLast() const { return axis_; }
  constexpr bool isPart() const { return size_ != 0; }
  constexpr int64_t pre() const { return pre_; }    // of a part
  constexpr int64_t size() const { return size_; }  // of a part
  std::string toString() const;                     // DIDx, DIDy, DIDz, DID3, ..., DIDx:2:4 (a part), Stream, Serial

  friend constexpr bool operator==(ParallelType, ParallelType) = default;

 private:
  constexpr ParallelType(Kind kind, int64_t axis, int64_t pre = 1, int64_t size = 0)
      : kind_(kind), axis_(axis), pre_(pre), size_(size) {}
  Kind kind_ = Kind::Serial;
  int64_t axis_ = 0;
  int64_t pre_ = 1;
  int64_t size_ = 0;  // of a part; 0: the whole axis
};

inline constexpr ParallelType ParallelType::Serial{Kind::Serial, 0};
inline constexpr ParallelType ParallelType::Stream{Kind::Stream, 0};
inline constexpr ParallelType ParallelType::DIDx = ParallelType::device(0);
inline constexpr ParallelType ParallelType::DIDy = ParallelType::device(1);
inline constexpr ParallelType ParallelType::DIDz = ParallelType::device(2);

[[nodiscard]] std::optional<ParallelType> parseParallelType(std::string_view text);

// Sizes of axes by name.
using MeshSizes = std::map<std::string, int64_t>;

class DeviceMesh {
 public:
  struct Axis {
    std::string name;
    std::optional<int64_t> size;  // absent: symbolic
    Axis(std::string n, std::optional<int64_t> s = std::nullopt) : name(std::move(n)), size(s) {}
  };

  DeviceMesh() = default;                                                                    // no mesh
  DeviceMesh(std::initializer_list<int64_t> ids) : DeviceMesh(std::vector<int64_t>(ids)) {}  // setDeviceMesh({0, 1})
  // UserError on repeated or negative ids, or if the shape's product is not the number of ids.
  explicit DeviceMesh(std::vector<int64_t> ids);
  DeviceMesh(std::vector<int64_t> ids, std::vector<int64_t> shape);
  static DeviceMesh createForNumDevices(int64_t n) { return createForShape({n}); }  // ids 0..n-1, one axis
  static DeviceMesh createForShape(std::vector<int64_t> shape);                     // ids 0..product-1
  // Named axes, outermost first; ids 0..product-1 once all sizes are known.
  static DeviceMesh create(std::vector<Axis> axes);
  static DeviceMesh create(std::vector<Axis> axes, std::vector<int64_t> ids);

  // The same axes with hints: sizes for which costs are compared while the real sizes are symbols; 2 without a hint. UserError if a name is
  // not that of an axis of symbolic size, or if a size is below 1.
  [[nodiscard]] DeviceMesh hint(const MeshSizes& sizes) const;
  // The same mesh with these sizes instead of symbols, and with ids 0..product-1 once all sizes are known. Other names are
  // ignored. UserError on a size below 1 and on too many devices.
  [[nodiscard]] DeviceMesh bind(const MeshSizes& sizes) const;

  bool empty() const { return grid_ == nullptr; }
  int64_t numAxes() const { return std::ssize(grid().names); }
  bool isSymbolic() const;               // some size is a symbol
  int64_t numDevices() const;            // InternalError while a size is symbolic
  int64_t hintSize(int64_t axis) const;  // its size if that is known
  const std::string& axisName(int64_t axis) const { return grid().names.at(axis); }
  const IntExpr& axisSize(int64_t axis) const { return grid().sizes.at(axis); }
  std::vector<int64_t> axisSizes() const;  // InternalError if a size is symbolic
  int64_t teamSize(
      const std::vector<int64_t>& axes) const;  // ranks along these axes; InternalError if a size is symbolic
  // Position of the axis that a device type names; UserError if the mesh has no such axis.
  int64_t axisOf(ParallelType type) const;
  ParallelType typeOf(int64_t axis) const { return ParallelType::device(numAxes() - 1 - axis); }
  // The type of the digit (coordinate / below) mod size of an axis; the type of the whole axis if the digit covers it.
  ParallelType typeOf(int64_t axis, int64_t below, int64_t size) const;
  // By name; UserError listing the names if there is none.
  ParallelType axis(std::string_view name) const;
  // A part of an axis, as in the example above. UserError unless the size of the axis is known and pre * size divides it.
  ParallelType axis(std::string_view name, int64_t pre, int64_t size) const;
  IntExpr size(std::string_view name) const { return size(axis(name)); }
  IntExpr size(ParallelType type) const { return type.isPart() ? IntExpr(type.size()) : axisSize(axisOf(type)); }
  // The `below` of a type: the position of a rank on the axis or part is (coordinate / below) mod size.
  IntExpr below(ParallelType type) const;
  // True if two types name overlapping digits of one axis.
  bool overlap(ParallelType a, ParallelType b) const;
  // Suggestions for replacing `a` or `b`, which overlap: axes, and parts of axes, that overlap no other type of `bound`. If one of the two
  // names a whole axis, the part of the axis that the other leaves free is also suggested.
  std::vector<ParallelType> freeInstead(ParallelType a, ParallelType b, std::vector<ParallelType> bound) const;

  // nvFuser's names of numDevices, contains and devices
  int64_t size() const { return numDevices(); }
  bool has(int64_t rank) const { return contains(rank); }
  const std::vector<int64_t>& vector() const { return devices(); }

  const std::vector<int64_t>& devices() const { return grid().ids; }  // row-major
  bool contains(int64_t rank) const { return indexOf(rank) >= 0; }
  int64_t indexOf(int64_t rank) const;                   // position in devices(), -1 if absent
  std::vector<int64_t> coordinates(int64_t rank) const;  // one for each axis; InternalError if absent
  int64_t at(const std::vector<int64_t>& coordinates) const;
  // The ranks along `axes` (positions) through `rank`, row-major in axis order of `axes`.
  std::vector<int64_t> team(int64_t rank, const std::vector<int64_t>& axes) const;

  std::string toString() const;  // {y: 2, x: 2}[0, 1, 2, 3]    {dp: 2, tp: tp hint 4}[]
  friend bool operator==(const DeviceMesh&, const DeviceMesh&);

 private:
  struct Grid {
    std::vector<std::string> names;
    std::vector<IntExpr> sizes;
    std::vector<int64_t> hints;  // of each axis, 0: none
    std::vector<int64_t> ids;
    friend bool operator==(const Grid&, const Grid&) = default;
  };
  const Grid& grid() const;

  std::shared_ptr<const Grid> grid_;  // null: no mesh; copies share it
};

// In any order.
[[nodiscard]] bool haveSameDevices(const DeviceMesh& a, const DeviceMesh& b);

}  // namespace meshfuse
