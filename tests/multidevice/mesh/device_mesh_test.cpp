#include "multidevice/mesh/device_mesh.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"

namespace meshfuse {
namespace {

std::string errorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(DeviceMesh, AxesCountFromTheLast) {
  DeviceMesh mesh({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(mesh.toString(), "{y: 2, x: 3}[0, 1, 2, 3, 4, 5]");
  EXPECT_EQ(mesh.axisOf(ParallelType::DIDx), 1);
  EXPECT_EQ(mesh.axisOf(ParallelType::DIDy), 0);
  EXPECT_TRUE(mesh.size(ParallelType::DIDx).isConst(3));
  EXPECT_EQ(mesh.axis("y"), ParallelType::DIDy);
  EXPECT_EQ(mesh.typeOf(0), ParallelType::DIDy);
  EXPECT_EQ(mesh.numDevices(), 6);
  EXPECT_EQ(mesh, DeviceMesh::createForShape({2, 3}));
  EXPECT_NE(mesh, DeviceMesh({1, 0, 2, 3, 4, 5}, {2, 3}));
}

// Teams against the definition: the ranks whose other coordinates agree, in row-major order of the given axes.
TEST(DeviceMesh, HasTheNamesOfNvfuser) {
  const DeviceMesh mesh = {0, 2, 5};
  EXPECT_EQ(mesh, DeviceMesh(std::vector<int64_t>{0, 2, 5}));
  EXPECT_EQ(mesh.size(), 3);
  EXPECT_TRUE(mesh.has(5));
  EXPECT_FALSE(mesh.has(1));
  EXPECT_EQ(mesh.vector(), (std::vector<int64_t>{0, 2, 5}));
  const DeviceMesh none = {};
  EXPECT_TRUE(none.empty());
}

TEST(DeviceMesh, TeamsAndCoordinates) {
  std::vector<int64_t> ids(24);
  for (size_t k = 0; k < ids.size(); k++) {
    ids[k] = static_cast<int64_t>((k * 7 + 3) % 24);
  }
  DeviceMesh mesh(ids, {2, 3, 4});
  for (int64_t rank = 0; rank < 24; rank++) {
    std::vector<int64_t> c = mesh.coordinates(rank);
    EXPECT_EQ(ids[c[0] * 12 + c[1] * 4 + c[2]], rank);
    EXPECT_EQ(mesh.at(c), rank);
    for (const std::vector<int64_t>& axes : {std::vector<int64_t>{}, {0}, {1}, {2}, {0, 2}, {2, 0}, {0, 1, 2}}) {
      std::vector<int64_t> expected;
      std::vector<std::pair<std::vector<int64_t>, int64_t>> members;
      for (int64_t other = 0; other < 24; other++) {
        std::vector<int64_t> o = mesh.coordinates(other);
        bool same = true;
        for (int64_t a = 0; a < 3; a++) {
          same &= std::count(axes.begin(), axes.end(), a) > 0 || o[a] == c[a];
        }
        if (same) {
          std::vector<int64_t> key;
          for (int64_t a : axes) {
            key.push_back(o[a]);
          }
          members.emplace_back(key, other);
        }
      }
      std::sort(members.begin(), members.end());
      for (const auto& [key, other] : members) {
        expected.push_back(other);
      }
      EXPECT_EQ(mesh.team(rank, axes), expected);
    }
  }
}

TEST(DeviceMesh, NamedAndSymbolicAxes) {
  DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp"}});
  EXPECT_EQ(mesh.toString(), "{dp: 2, tp: tp}[]");
  EXPECT_EQ(mesh.axis("tp"), ParallelType::DIDx);
  EXPECT_EQ(mesh.size("tp").toString(), "tp");
  EXPECT_EQ(mesh.size("tp").lower(), 1);
  EXPECT_THROW((void)mesh.numDevices(), InternalError);
  EXPECT_EQ(DeviceMesh::create({{"dp", 2}, {"tp", 2}}).devices().size(), 4u);
  EXPECT_EQ(DeviceMesh::createForNumDevices(1).numDevices(), 1);
  EXPECT_TRUE(DeviceMesh().empty());
  EXPECT_EQ(DeviceMesh().numDevices(), 0);
}

TEST(DeviceMesh, HintsAndSizesOfSymbolicAxes) {
  const DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp"}});
  EXPECT_TRUE(mesh.isSymbolic());
  EXPECT_EQ(mesh.hintSize(0), 2);
  EXPECT_EQ(mesh.hintSize(1), 2);
  const DeviceMesh hinted = mesh.hint({{"tp", 4}});
  EXPECT_EQ(hinted.hintSize(1), 4);
  EXPECT_EQ(hinted.toString(), "{dp: 2, tp: tp hint 4}[]");
  EXPECT_FALSE(hinted == mesh);
  for (const DeviceMesh& m : {mesh, hinted}) {
    EXPECT_EQ(m.bind({{"tp", 3}, {"other", 7}}), DeviceMesh::create({{"dp", 2}, {"tp", 3}}));
    EXPECT_EQ(m.bind({}), m);
  }
  EXPECT_FALSE(mesh.bind({{"tp", 1}}).isSymbolic());
  EXPECT_THROW((void)mesh.hint({{"dp", 2}}), UserError);
  EXPECT_THROW((void)mesh.hint({{"pp", 2}}), UserError);
  EXPECT_THROW((void)mesh.hint({{"tp", 0}}), UserError);
  EXPECT_THROW((void)mesh.bind({{"tp", 0}}), UserError);
  EXPECT_THROW((void)mesh.bind({{"tp", int64_t{1} << 40}}), UserError);
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no UserError";
}

TEST(DeviceMesh, Mistakes) {
  using Axes = std::vector<DeviceMesh::Axis>;
  const auto made = [](const Axes& axes) { return refusal([&] { (void)DeviceMesh::create(axes); }); };
  EXPECT_EQ(refusal([] { DeviceMesh({0, 0}); }), "[mesh] device 0 is listed twice in [0, 0]; list each rank once");
  EXPECT_EQ(refusal([] {
              DeviceMesh({3, 1, 2, 1}, {2, 2});
            }),
            "[mesh] device 1 is listed twice in [3, 1, 2, 1]; list each rank once");
  EXPECT_EQ(refusal([] { DeviceMesh({-1}); }), "[mesh] device ids are ranks, 0 to 1048575; got -1");
  EXPECT_EQ(refusal([] {
              DeviceMesh({0, 1, 2}, {2, 2});
            }),
            "[mesh] 3 device ids for a mesh of 2 x 2; the product of the shape must be the number of ids");
  EXPECT_EQ(refusal([] {
              (void)DeviceMesh::createForShape({2, 0});
            }),
            "[mesh] axis x has size 0; a mesh axis has 1 to 1048576 devices");
  EXPECT_EQ(refusal([] { (void)DeviceMesh::createForShape({}); }), "[mesh] a mesh needs at least one axis; got none");
  EXPECT_EQ(made({{"a", 2}, {"a", 2}}), "[mesh] two axes are named a; give each axis a name of its own");
  EXPECT_EQ(
      made({{"i0", 2}}),
      "[mesh] \"i0\" cannot name an axis; use letters, digits and _, and none of inf, nan, true, false, i0, T0, S0");
  EXPECT_TRUE(made({{"", 2}}).starts_with("[mesh] \"\" cannot name an axis"));
  EXPECT_EQ(refusal([] {
              (void)DeviceMesh::create({{"tp"}}, {0, 1});
            }),
            "[mesh] 2 device ids for a mesh of tp; give ids once every axis has a size");
  const DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"x", 3}});
  EXPECT_EQ(refusal([&] { (void)mesh.axis("tp"); }), "[mesh] no axis is named tp; there are dp, x");
  EXPECT_EQ(refusal([&] { (void)mesh.size("tp"); }), "[mesh] no axis is named tp; there are dp, x");
  EXPECT_EQ(refusal([&] { (void)mesh.axisOf(ParallelType::DIDz); }),
            "[mesh] DIDz needs a mesh of at least 3 axes, {dp: 2, x: 3}[0, 1, 2, 3, 4, 5] has 2; give the mesh more "
            "axes or bind one of DIDy (dp), DIDx (x)");
  EXPECT_EQ(refusal([&] { (void)mesh.axisOf(ParallelType::Stream); }),
            "[mesh] Stream is not a mesh axis; use DIDx, DIDy or DIDz");
  EXPECT_THROW((void)mesh.coordinates(6), InternalError);
  EXPECT_EQ(mesh.indexOf(6), -1);
}

TEST(DeviceMesh, PartsOfAnAxis) {
  const DeviceMesh mesh = DeviceMesh::create({{"dp", 3}, {"tp", 8}});
  const ParallelType half = mesh.axis("tp", 1, 2);
  const ParallelType inHalf = mesh.axis("tp", 2, 4);
  EXPECT_EQ(half.toString(), "DIDx:1:2");
  EXPECT_EQ(mesh.size(half), IntExpr(2));
  EXPECT_EQ(mesh.below(half), IntExpr(4));
  EXPECT_EQ(mesh.below(inHalf), IntExpr(1));
  EXPECT_EQ(mesh.axisOf(half), 1);
  EXPECT_EQ(mesh.axis("tp", 1, 8), mesh.axis("tp"));
  EXPECT_EQ(mesh.typeOf(1, 4, 2), half);
  EXPECT_FALSE(mesh.overlap(half, inHalf));
  EXPECT_TRUE(mesh.overlap(half, mesh.axis("tp")));
  EXPECT_FALSE(mesh.overlap(half, mesh.axis("dp")));
  EXPECT_EQ(errorOf([&] { (void)mesh.axis("tp", 3, 2); }),
            "[mesh] axis tp has size 8, got 3 parts of 2 parts each; give numbers whose product divides the size");
  EXPECT_EQ(errorOf([&] { (void)DeviceMesh::create({{"tp"}}).axis("tp", 1, 2); }),
            "[mesh] the size of axis tp is a symbol; only an axis of constant size can be cut in parts");
}

TEST(DeviceMesh, WhatIsFreeBesideWhatOverlaps) {
  const DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp", 12}});
  const ParallelType dp = mesh.axis("dp");
  const ParallelType tp = mesh.axis("tp");
  const ParallelType outer = mesh.axis("tp", 1, 2);
  const ParallelType middle = mesh.axis("tp", 2, 3);
  const ParallelType inner = mesh.axis("tp", 6, 2);
  using Types = std::vector<ParallelType>;
  EXPECT_EQ(mesh.freeInstead(tp, tp, {tp, tp}), Types{dp});
  EXPECT_EQ(mesh.freeInstead(tp, tp, {tp, dp, tp}), Types{});
  EXPECT_EQ(mesh.freeInstead(middle, middle, {middle, middle}), (Types{dp, outer, inner}));
  EXPECT_EQ(mesh.freeInstead(outer, outer, {outer, dp, outer}), Types{mesh.axis("tp", 2, 6)});
  EXPECT_EQ(mesh.freeInstead(outer, outer, {outer, outer, inner, dp}), Types{middle});
  // a part after the longer of two parts may overlap the shorter one
  const ParallelType four = mesh.axis("tp", 1, 4);
  EXPECT_EQ(mesh.freeInstead(four, mesh.axis("tp", 1, 6), {four, dp, mesh.axis("tp", 1, 6)}), Types{});
  // nothing that the axis does not have
  const ParallelType beyond = ParallelType::device(tp.axisFromLast(), 24, 2);
  EXPECT_EQ(mesh.freeInstead(beyond, beyond, {beyond, dp, beyond}), Types{});
  // who names the whole may take what the part leaves
  EXPECT_EQ(mesh.freeInstead(tp, inner, {tp, dp, inner}), Types{mesh.axis("tp", 1, 6)});
  EXPECT_EQ(mesh.freeInstead(inner, tp, {inner, dp, tp}), Types{mesh.axis("tp", 1, 6)});
  EXPECT_EQ(DeviceMesh::create({{"tp"}}).freeInstead(ParallelType::DIDx, ParallelType::DIDx,
                                                     {ParallelType::DIDx, ParallelType::DIDx}),
            Types{});
}

// Parts that do not overlap say nothing of each other: all pairs of places occur.
TEST(DeviceMesh, PartsThatDoNotOverlapAreIndependent) {
  int64_t independent = 0;
  for (int64_t n = 2; n <= 24; n++) {
    const DeviceMesh mesh = DeviceMesh::create({{"x", n}});
    std::vector<ParallelType> types;
    for (int64_t pre = 1; pre <= n; pre++) {
      for (int64_t size = 2; pre * size <= n; size++) {
        if (n % (pre * size) == 0) {
          types.push_back(mesh.axis("x", pre, size));
        }
      }
    }
    for (const ParallelType& a : types) {
      for (const ParallelType& b : types) {
        ASSERT_EQ(mesh.overlap(a, b), mesh.overlap(b, a));
        if (mesh.overlap(a, b)) {
          continue;
        }
        std::set<std::pair<int64_t, int64_t>> places;
        const auto placeOn = [&](int64_t coordinate, const ParallelType& t) {
          return coordinate / mesh.below(t).constValue() % mesh.size(t).constValue();
        };
        for (int64_t c = 0; c < n; c++) {
          places.emplace(placeOn(c, a), placeOn(c, b));
        }
        ASSERT_EQ(std::ssize(places), mesh.size(a).constValue() * mesh.size(b).constValue());
        independent++;
      }
    }
  }
  EXPECT_GT(independent, 100);
}

TEST(ParallelType, NamesReadBack) {
  for (const char* text : {"DIDx:1:2", "DIDy:2:4", "DID5:3:3"}) {
    EXPECT_EQ(parseParallelType(text).value().toString(), text);
  }
  for (const char* text : {"DIDx:", "DIDx:1", "DIDx:0:2", "DIDx:1:2:3", "Stream:1:2", "DIDx:a:2"}) {
    EXPECT_FALSE(parseParallelType(text).has_value()) << text;
  }
  for (int64_t k = 0; k < 12; k++) {
    ParallelType type = ParallelType::device(k);
    EXPECT_EQ(parseParallelType(type.toString()), type);
  }
  EXPECT_EQ(parseParallelType("Stream"), ParallelType::Stream);
  EXPECT_EQ(parseParallelType("Serial"), ParallelType::Serial);
  for (const char* text : {"DID", "DID2", "DIDw", "DID-3", "TIDx", ""}) {
    EXPECT_EQ(parseParallelType(text), std::nullopt) << text;
  }
}

// Nothing is as large as the number says before it has been checked.
TEST(DeviceMesh, NumbersOfDevicesAreBounded) {
  static constexpr int64_t kHuge = int64_t{1} << 32;
  EXPECT_NE(errorOf([] {
              (void)DeviceMesh({0, int64_t{1} << 31});
            }).find("0 to 1048575; got 2147483648"),
            std::string::npos);
  EXPECT_NE(errorOf([] { (void)DeviceMesh({INT64_MIN, 1}); }).find("got -9223372036854775808"), std::string::npos);
  EXPECT_NE(errorOf([] { (void)DeviceMesh::createForNumDevices(kHuge); }).find("axis x has size 4294967296"),
            std::string::npos);
  EXPECT_NE(errorOf([] {
              (void)DeviceMesh::createForShape({1 << 20, 1 << 20, 1 << 20, 1 << 20});
            }).find("have 1099511627776 devices; expected at most 1048576"),
            std::string::npos);
  EXPECT_NE(errorOf([] {
              (void)DeviceMesh({0, 1}, {kHuge, kHuge});
            }).find("axis y has size 4294967296"),
            std::string::npos);
  EXPECT_NE(errorOf([] {
              (void)DeviceMesh::create({{"dp", 2}, {"tp"}}).bind({{"tp", kHuge}});
            }).find("4294967296"),
            std::string::npos);
  EXPECT_NE(errorOf([] {
              (void)DeviceMesh::create({{"tp"}}).hint({{"tp", kHuge}});
            }).find("4294967296"),
            std::string::npos);
  const DeviceMesh mesh({0, 1});
  EXPECT_NE(errorOf([&] { (void)mesh.axisOf(ParallelType::device(INT64_MAX - 1)); }).find("needs a mesh of at least"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { (void)mesh.axis("x", kHuge, kHuge); }).find("4294967296 parts of 4294967296 parts each"),
            std::string::npos);
}

}  // namespace
}  // namespace meshfuse
