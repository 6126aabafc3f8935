#include "multidevice/mesh/device_mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace meshfuse {
namespace {

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
TEST(DeviceMesh, TeamsAndCoordinates) {
  std::vector<int64_t> ids(24);
  for (size_t k = 0; k < ids.size(); k++) {
    ids[k] = static_cast<int64_t>((k * 7 + 3) % 24);
  }
  DeviceMesh mesh(ids, {2, 3, 4});
  for (int64_t rank = 0; rank < 24; rank++) {
    std::vector<int64_t> c = mesh.coordinates(rank);
    EXPECT_EQ(ids[static_cast<size_t>(c[0] * 12 + c[1] * 4 + c[2])], rank);
    EXPECT_EQ(mesh.at(c), rank);
    for (const std::vector<int>& axes : {std::vector<int>{}, {0}, {1}, {2}, {0, 2}, {2, 0}, {0, 1, 2}}) {
      std::vector<int64_t> expected;
      std::vector<std::pair<std::vector<int64_t>, int64_t>> members;
      for (int64_t other = 0; other < 24; other++) {
        std::vector<int64_t> o = mesh.coordinates(other);
        bool same = true;
        for (int a = 0; a < 3; a++) {
          same &= std::count(axes.begin(), axes.end(), a) > 0 || o[static_cast<size_t>(a)] == c[static_cast<size_t>(a)];
        }
        if (same) {
          std::vector<int64_t> key;
          for (int a : axes) {
            key.push_back(o[static_cast<size_t>(a)]);
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

TEST(DeviceMesh, Mistakes) {
  EXPECT_THROW(DeviceMesh({0, 0}), UserError);
  EXPECT_THROW(DeviceMesh({-1}), UserError);
  EXPECT_THROW(DeviceMesh({0, 1, 2}, {2, 2}), UserError);
  EXPECT_THROW((void)DeviceMesh::createForShape({2, 0}), UserError);
  EXPECT_THROW((void)DeviceMesh::createForShape({}), UserError);
  EXPECT_THROW((void)DeviceMesh::create({{"a", 2}, {"a", 2}}), UserError);
  EXPECT_THROW((void)DeviceMesh::create({{"i0", 2}}), UserError);
  EXPECT_THROW((void)DeviceMesh::create({{"", 2}}), UserError);
  EXPECT_THROW((void)DeviceMesh::create({{"tp"}}, {0, 1}), UserError);
  DeviceMesh mesh({0, 1});
  EXPECT_THROW((void)mesh.axisOf(ParallelType::DIDy), UserError);
  EXPECT_THROW((void)mesh.axisOf(ParallelType::Stream), UserError);
  EXPECT_THROW((void)mesh.axis("tp"), UserError);
  EXPECT_THROW((void)mesh.coordinates(2), InternalError);
  EXPECT_EQ(mesh.indexOf(2), -1);
}

TEST(ParallelType, NamesReadBack) {
  for (int k = 0; k < 12; k++) {
    ParallelType type = ParallelType::device(k);
    EXPECT_EQ(parseParallelType(type.toString()), type);
  }
  EXPECT_EQ(parseParallelType("Stream"), ParallelType::Stream);
  EXPECT_EQ(parseParallelType("Serial"), ParallelType::Serial);
  for (const char* text : {"DID", "DID2", "DIDw", "DID-3", "TIDx", ""}) {
    EXPECT_EQ(parseParallelType(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace meshfuse
