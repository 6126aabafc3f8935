#include "errors/misuse.h"

namespace meshfuse {
namespace {

using ShapeOps = Misuse;

TEST_F(ShapeOps, Reshape) {
  expectUserError([&] { reshape(x, {4, 2}); }, {"[reshape]", "6 elements", "make 8", "expected equal"});
  expectUserError([&] { reshape(x, {-1, -1}); }, {"[reshape]", "-1 twice", "at most once"});
  expectUserError([&] { reshape(x, {4, -1}); }, {"[reshape]", "6 elements", "do not divide"});
  expectUserError([&] { reshape(x, {0, -1}); }, {"[reshape]", "ambiguous"});
  expectUserError([&] { reshape(x, {-2, 3}); }, {"[reshape]", "-2", "expected 0 or more"});
  expectUserError([&] { reshape(x, {2, 4}, {8}); }, {"[reshape]", "dim 1", "has extent 3", "say 4"});
  expectUserError([&] { flatten(x, 1, 0); }, {"[flatten]", "from 1 to 0"});
}

TEST_F(ShapeOps, DimsOfOne) {
  expectUserError([&] { squeeze(x, 0); }, {"[squeeze]", "dim 0", "extent 2", "expected the constant 1"});
  expectUserError([&] { squeeze(x, 5); }, {"[squeeze]", "axis 5", "2 dims", "-2 to 1"});
  expectUserError([&] { unsqueeze(x, 4); }, {"[unsqueeze]", "axis 4", "-3 to 2"});
  expectUserError([&] { broadcast(x, {true, false}); }, {"[broadcast]", "got 1 flags", "here 2"});
  expectUserError([&] { expand(x, {5, 3}); }, {"[expand]", "dim 0", "extent 2", "got 5", "only broadcast dims"});
  expectUserError([&] { expand(x, {3}); }, {"[expand]", "1 sizes", "at least one for each dim"});
  expectUserError([&] { expand(x, {-1, 2, 3}); }, {"[expand]", "-1 for a new leading dim"});
  expectUserError([&] { repeat(x, {2}); }, {"[repeat]", "got 1", "at least one for each dim"});
  expectUserError([&] { repeat(x, {2, -1}); }, {"[repeat]", "repeat count of -1", "expected 0 or more"});
}

TEST_F(ShapeOps, Order) {
  expectUserError([&] { permute(x, {0}); }, {"[permute]", "1 axes", "expected one for each dim"});
  expectUserError([&] { permute(x, {0, 0}); }, {"[permute]", "axis 0", "twice"});
  expectUserError([&] { permute(x, {0, 2}); }, {"[permute]", "axis 2", "out of range"});
  expectUserError([&] { transpose(makeConcreteTensor({2, 3, 4})); }, {"[transpose]", "3 dims", "name the two axes"});
}

TEST_F(ShapeOps, Casts) {
  expectUserError([&] { bitCastOp(DataType::Double, x); }, {"[bitCastOp]", "4 bytes", "has 8", "same size"});
  expectUserError([&] { castOp(DataType::Int, none); }, {"[castOp]", "null", "expected a tensor"});
  expectUserError([&] { set(none); }, {"[set]", "null"});
}

TEST_F(ShapeOps, Windows) {
  expectUserError([&] { slice(x, {0}, {1}); }, {"[slice]", "1 ranges", "expected one for each dim"});
  expectUserError([&] { slice(x, {0, 0}, {1, 1}, {1, 0}); }, {"[slice]", "dim 1", "step 0", "at least 1"});
  expectUserError([&] { slice(x, {0, 0}, {1}); }, {"[slice]", "2 starts", "1 stops"});
  expectUserError([&] { pad(x, {1}); }, {"[pad]", "1 widths", "two for each dim"});
  expectUserError([&] { pad(x, {1, 1, 1, 1, 1, 1}); }, {"[pad]", "6 widths", "at most 2 dims"});
  expectUserError([&] { pad(x, {-2, -2}); }, {"[pad]", "cut dim 1", "-1 elements", "at most 3"});
  expectUserError([&] { cat({x, y}, 1); }, {"[cat]", "dim 0", "has 2", "has 4", "all dims but 1"});
  expectUserError([&] { cat({x, makeConcreteTensor({2})}, 0); }, {"[cat]", "different numbers of dims"});
  expectUserError([&] { cat({}, 0); }, {"[cat]", "no tensors"});
  expectUserError([&] { cat({zeroD, zeroD}, 0); }, {"[cat]", "no dims", "unsqueeze"});
  expectUserError([&] { chunk(x, 0, 0); }, {"[chunk]", "0 chunks"});
  expectUserError([&] { chunk(makeSymbolicTensor(1), 2, 0); }, {"[chunk]", "expected a constant", "slice"});
  expectUserError([&] { size(x, 2); }, {"[size]", "axis 2"});
}

TEST_F(ShapeOps, SizesThatAreNoScalars) {
  expectUserError(
      [&] {
        reshape(x, {static_cast<Val*>(x), IrBuilder::create<Val>(1)});
      },
      {"[sizes]", "item 0", "expected an Int scalar"});
  expectUserError([&] { expand(x, std::vector<Val*>{nullptr}); }, {"[sizes]", "item 0 is null"});
  expectUserError([&] { full(std::vector<Val*>{IrBuilder::create<Val>(1.5)}, 0, DataType::Float); },
                  {"[sizes]", "Double", "expected an Int scalar"});
}

}  // namespace
}  // namespace meshfuse
