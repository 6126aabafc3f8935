#include "errors/misuse.h"

namespace meshfuse {
namespace {

using Contraction = Misuse;

TEST_F(Contraction, Matmul) {
  expectUserError([&] { matmul(x, y); }, {"[matmul] inner extents differ", "has 3", "has 4", "transpose"});
  expectUserError([&] { matmul(x, n); }, {"[matmul]", "types differ", "Float", "Int", "castOp"});
  expectUserError([&] { matmul(x, zeroD); }, {"[matmul]", "0-d", "use mul"});
  expectUserError([&] { matmul(gt(x, 0), transpose(gt(x, 0))); }, {"[matmul]", "Bool", "expected numbers"});
  expectUserError(
      [&] {
        matmul(makeConcreteTensor({2, 3, 4}), makeConcreteTensor({3, 4, 5}));
      },
      {"[matmul] batch extents differ", "has 2", "has 3"});
}

TEST_F(Contraction, Linear) {
  expectUserError(
      [&] {
        linear(x, makeConcreteTensor({3, 4}));
      },
      {"[linear] inner extents differ", "has 3", "has 4", "[N, K]"});
  expectUserError([&] { linear(x, y, makeConcreteTensor({3})); }, {"[linear]", "bias is", "expected a bias of [4]"});
  expectUserError(
      [&] {
        linear(x, makeConcreteTensor({1, 2, 3}));
      },
      {"[linear]", "the weight is", "expected [N, K] or [K]"});
  expectUserError([&] { linear(zeroD, y); }, {"[linear]", "0-d"});
}

using Indexing = Misuse;

TEST_F(Indexing, Shapes) {
  expectUserError([&] { index_select(x, 0, n); }, {"[index_select]", "expected one dim"});
  expectUserError([&] { index_select(x, 0, y); }, {"[index_select]", "expected integer elements", "castOp"});
  expectUserError([&] { gather(x, 0, makeConcreteTensor({2}, DataType::Int)); },
                  {"[gather]", "different numbers of dims"});
  expectUserError(
      [&] {
        gather(x, 0, makeConcreteTensor({2, 5}, DataType::Int));
      },
      {"[gather]", "dim 1", "larger", "at most 3"});
  expectUserError(
      [&] {
        takeAlongAxis(x, makeConcreteTensor({1, 2}, DataType::Int), 0);
      },
      {"[takeAlongAxis]", "dim 1"});
  expectUserError([&] { embedding_fwd(n, zeroD); }, {"[embedding_fwd]", "expected [V, D]"});
}

TEST_F(Indexing, WhatIsScattered) {
  expectUserError([&] { scatter(x, 0, none, x); }, {"[scatter]", "the index is null"});
  expectUserError([&] { scatter(x, 0, n, none); }, {"[scatter]", "the source is null"});
  expectUserError([&] { scatter(x, 0, y, x); }, {"[scatter]", "expected integer elements", "castOp"});
  expectUserError([&] { scatter(x, 0, n, n); }, {"[scatter]", "Float", "Int", "different types", "castOp"});
  expectUserError([&] { scatter(x, 2, n, x); }, {"[scatter] axis 2 is out of range", "-2 to 1"});
  expectUserError([&] { scatter(zeroD, 0, n, zeroD); }, {"[scatter]", "no dims"});
  expectUserError([&] { scatter(x, 0, makeConcreteTensor({3}, DataType::Int), x); },
                  {"[scatter]", "different numbers of dims"});
  expectUserError([&] { scatter(y, 1, n, x); }, {"[scatter] dim 0 of index", "differs", "outside dim 1"});
  expectUserError([&] { scatter(x, 0, n, y); }, {"[scatter] dim 0 of", "differs", "expected one shape"});
}

TEST_F(Indexing, WhatIsAdded) {
  TensorView* rows = makeConcreteTensor({4}, DataType::Int);
  expectUserError([&] { indexPutAccumulate(x, none, y); }, {"[indexPutAccumulate]", "the index is null"});
  expectUserError([&] { indexPutAccumulate(x, rows, none); }, {"[indexPutAccumulate]", "the source is null"});
  expectUserError([&] { indexPutAccumulate(x, y, y); }, {"[indexPutAccumulate]", "expected integer elements"});
  expectUserError([&] { indexPutAccumulate(n, rows, y); }, {"[indexPutAccumulate]", "different types", "castOp"});
  expectUserError([&] { indexPutAccumulate(zeroD, rows, y); }, {"[indexPutAccumulate]", "no dims"});
  expectUserError([&] { indexPutAccumulate(gt(x, 0), rows, gt(y, 0)); },
                  {"[indexPutAccumulate]", "cannot be added", "Int"});
  expectUserError([&] { indexPutAccumulate(x, rows, x); }, {"[indexPutAccumulate]", "[2, 3]", "expected [4, 3]"});
  expectUserError([&] { indexPutAccumulate(x, n, y); }, {"[indexPutAccumulate]", "[4, 3]", "expected [2, 3, 3]"});
}

using Factory = Misuse;

TEST_F(Factory, Arguments) {
  expectUserError([&] { zeros({2, -3}, DataType::Float); }, {"[full]", "extent -3", "expected 0 or more"});
  expectUserError([&] { rand({2}, DataType::Int); }, {"[rand]", "type Int", "expected a floating type"});
  expectUserError([&] { rand_like(n); }, {"[rand_like]", "not floating"});
  expectUserError([&] { rand({2}, DataType::Float, 0.5); }, {"[rand]", "seed", "Int scalar"});
  expectUserError([&] { arange(0, 5, 0); }, {"[arange]", "step", "not a constant or is 0"});
  expectUserError([&] { iota(-1); }, {"[iota]", "length -1"});
  expectUserError([&] { dropout(x, 1.5); }, {"[dropout]", "1.5", "0 to 1"});
  expectUserError([&] { full({2}, x, DataType::Float); }, {"[full]", "expected a scalar"});
}

TEST_F(Factory, Inputs) {
  expectUserError([&] { makeConcreteTensor({2, -2}); }, {"[TensorViewBuilder]", "extent -2"});
  expectUserError([&] { TensorViewBuilder().ndims(2).contiguity(std::vector<bool>{true}).build(); },
                  {"[TensorViewBuilder]", "contiguity has 1", "here 2"});
  expectUserError(
      [&] {
        TensorViewBuilder().ndims(2).strideOrder({0, 0}).build();
      },
      {"[TensorViewBuilder]", "strideOrder", "0 to 1"});
  expectUserError(
      [&] {
        TensorViewBuilder().ndims(1).shape(std::vector<int64_t>{1, 2}).build();
      },
      {"[TensorViewBuilder]", "ndims is 1", "2 extents"});
}

}  // namespace
}  // namespace meshfuse
