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

// 2^32 is no axis 0, and what does not fit in 64 bits no small extent.
TEST_F(ShapeOps, NumbersThatDoNotFit) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  constexpr int64_t kAxis = int64_t{1} << 32;
  expectUserError([&] { squeeze(x, kAxis); }, {"[squeeze]", "axis 4294967296"});
  expectUserError([&] { unsqueeze(x, kAxis); }, {"[unsqueeze]", "axis 4294967296"});
  expectUserError([&] { transpose(x, 0, kAxis); }, {"[transpose]", "axis 4294967296"});
  expectUserError([&] { permute(x, {0, kAxis}); }, {"[permute]", "axis 4294967296"});
  expectUserError([&] { cat({x, x}, kAxis); }, {"[cat]", "axis 4294967296"});
  expectUserError([&] { chunk(x, 2, kAxis); }, {"[chunk]", "axis 4294967296"});
  expectUserError([&] { size(x, kAxis); }, {"[size]", "axis 4294967296"});
  expectUserError([&] { sum(x, {kAxis}); }, {"[sum]", "axis 4294967296"});
  expectUserError([&] { softmax(x, kAxis); }, {"[softmax]", "axis 4294967296"});
  expectUserError([&] { flatten(x, 0, kAxis); }, {"[flatten]", "axis 4294967296"});
  expectUserError([&] { x->split(kAxis, 2); }, {"[split]", "axis 4294967296"});
  expectUserError([&] { x->merge(kAxis); }, {"[merge]", "axis 4294967296"});
  expectUserError([&] { (void)x->axis(kAxis); }, {"[axis]", "axis 4294967296"});
  expectUserError([&] { x->axis(0)->parallelize(ParallelType::device(-1)); }, {"[parallelize]", "expected an axis"});
  expectUserError([&] { x->axis(0)->parallelize(ParallelType::device(0, kAxis, kAxis)); },
                  {"[parallelize]", "parts of 1 to 1048576"});
  expectUserError([&] { makeSymbolicTensor(kHuge); }, {"ndims is 4611686018427387904, expected 0 to 64"});
  expectUserError([&] { repeat(x, {kHuge, kHuge}); }, {"[sizes]", "2 * 4611686018427387904"});
  expectUserError([&] { pad(x, {INT64_MAX, INT64_MAX}); }, {"[sizes]", "3 + 9223372036854775807"});
  expectUserError(
      [&] {
        cat({makeConcreteTensor({INT64_MAX}), makeConcreteTensor({1})}, 0);
      },
      {"[sizes]", "9223372036854775807 + 1"});
  expectUserError([&] { reshape(x, {kHuge, kHuge}); }, {"[sizes]", "4611686018427387904 * 4611686018427387904"});
  expectUserError([&] { chunk(makeConcreteTensor({kHuge}), INT64_MAX, 0); }, {"[chunk]", "expected at most 65536"});
  EXPECT_EQ(chunk(x, INT64_MAX, 1).size(), 3u);
  expectUserError([&] { arange(0.0, 1e300, 1.0); }, {"[arange]", "expected less than 2^53"});
  expectUserError([&] { arange(INT64_MIN, INT64_MAX, int64_t{1}); }, {"[sizes]"});
  expectUserError([&] { arange(0, 5, INT64_MIN); }, {"[arange]", "step -9"});
  expectUserError([&] { iota(fusion, -kHuge, 0, 1); }, {"[iota]", "length -4611686018427387904"});
  expectUserError([&] { x->partition(0, makeConcreteTensor({kHuge}, DataType::Int)); },
                  {"[partition]", "at most 1048576"});
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
