// Symbols of coordinates: one for all meshes on which no rank stands at two places.
#include "multidevice/sharding/coordinates.h"

#include <gtest/gtest.h>

#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"

namespace meshfuse {
namespace {

DeviceMesh onX(std::vector<int64_t> ids) {
  const auto n = std::ssize(ids);
  return DeviceMesh::create({{"x", n}}, std::move(ids));
}

void add(Fusion& fusion, const DeviceMesh& mesh) {
  TensorView* tv = fusion.tensor(DataType::Float, {{4}});
  fusion.addInput(tv);
  tv->setDeviceMesh(mesh);
}

TEST(Coordinates, DisjointMeshesShareASymbol) {
  Fusion fusion;
  add(fusion, onX({0, 1}));
  add(fusion, onX({3, 2}));
  const CoordinateSymbols symbols(fusion);
  EXPECT_EQ(symbols.of(onX({0, 1}), 0).toString(), "coord.x");
  EXPECT_EQ(symbols.of(onX({3, 2}), 0).toString(), "coord.x");
  EXPECT_EQ(symbols.valuesOn(1).at("coord.x"), 1);
  EXPECT_EQ(symbols.valuesOn(2).at("coord.x"), 1);
  EXPECT_TRUE(symbols.valuesOn(4).empty());
}

TEST(Coordinates, ARankAtTwoPlacesHasTwo) {
  Fusion fusion;
  const DeviceMesh grid = DeviceMesh::create({{"y", 2}, {"x", 2}});
  add(fusion, onX({0, 1}));
  add(fusion, onX({1, 2}));
  add(fusion, grid);               // x of rank 2 is 0, where the mesh before says 1
  add(fusion, onX({0, 1, 2, 3}));  // another size
  const CoordinateSymbols symbols(fusion);
  EXPECT_EQ(symbols.of(onX({0, 1}), 0).toString(), "coord.x");
  EXPECT_EQ(symbols.of(onX({1, 2}), 0).toString(), "coord.x.1");
  EXPECT_EQ(symbols.of(grid, 1).toString(), "coord.x");
  EXPECT_EQ(symbols.of(grid, 0).toString(), "coord.y");
  EXPECT_EQ(symbols.of(onX({0, 1, 2, 3}), 0).toString(), "coord.x.2");
  const std::map<std::string, int64_t, std::less<>> expected{
      {"coord.x", 1}, {"coord.x.1", 0}, {"coord.x.2", 1}, {"coord.y", 0}};
  EXPECT_EQ(symbols.valuesOn(1), expected);
}

TEST(LocalIndices, OfADeviceOutsideTheMeshAreNone) {
  const ShardState state = ShardState::replicated(onX({1, 2}), {4, 6});
  EXPECT_EQ(heldPart(state, 0).sizes(), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(heldPart(state, 1).sizes(), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(heldPart(ShardState::replicated(onX({1, 2}), {}), 0).sizes(), std::vector<int64_t>{0});
}

}  // namespace
}  // namespace meshfuse
