// The stress inputs again, cut over virtual ranks.
#include <gtest/gtest.h>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "sanitized.h"
#include "stress/on_ranks.h"
#include "stress/special_values.h"

namespace meshfuse {

namespace {

TEST(OnRanks, ReductionsOfTensorsWithoutElements) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({4, 3, 0, 5});
        f.addInput(x);
        for (const std::vector<int64_t>& axes :
             std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {2, 3}, {0, 2}, {0, 1, 2, 3}}) {
          for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min}) {
            f.addOutput(reductionOp(op, x, axes));
          }
          f.addOutput(any(gt(x, 0.0), axes));
          f.addOutput(all(gt(x, 0.0), axes));
        }
        cut(x, 0, ranks);
      },
      {{{random({4, 3, 0, 5})}}});
}

TEST(OnRanks, EmptyOperandsInTheMiddle) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 0});
        TensorView* y = makeContigConcreteTensor({8, 4});
        f.addInput(x);
        f.addInput(y);
        f.addOutput(tanh(cat({x, y}, 1)));
        f.addOutput(sum(cat({slice(y, {0, 2}, {8, 2}), y}, 1), {0}));
        f.addOutput(pad(slice(exp(y), {0, 4}, {8, 4}), {1, 2}, 7.0));
        cut(x, 0, ranks);
        cut(y, 0, ranks);
      },
      {{{random({8, 0}), random({8, 4}, 2)}}});
}

TEST(OnRanks, ResultsWithoutDims) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 4});
        TensorView* s = makeContigConcreteTensor({});
        f.addInput(x);
        f.addInput(s);
        f.addOutput(sum(mul(x, s), {0, 1}));
        f.addOutput(max(x, {0, 1}, true));
        f.addOutput(add(x, sum(x, {0, 1})));
        cut(x, 0, ranks);
        s->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
      },
      {{{random({8, 4}), random({})}}});
}

TEST(OnRanks, NoTensorInput) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        Val* d = IrBuilder::create<Val>(DataType::Double);
        f.addInput(d);
        auto sharded = [&](TensorView* y) {
          f.addOutput(y);
          cut(y, 0, ranks);
        };
        auto whole = [&](TensorView* y) {
          f.addOutput(y);
          y->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
        };
        sharded(mul(full({8, 3}, d, DataType::Float), 2.0));
        sharded(add(iota(12), 5));
        sharded(rand({8, 9}, DataType::Float, 3, 1));
        sharded(eye(8, DataType::Double));
        whole(sum(randn({8, 5}, DataType::Float, 3, 2), {0}));
        whole(softmax(rand({4, 9}, DataType::Float, 3, 1), 1));
        whole(full({}, 1, DataType::Int));
        whole(zeros({0, 2}, DataType::Float));
        TensorView* drawn = cut(rand({8, 4}, DataType::Float, 5, 1), 0, ranks);
        whole(sum(drawn, {0}));
      },
      {{{0.25}}, {{-1.5}}});
}

// Shards [8 / ranks, 12] in every layout that views can make, contiguous first.
TEST(OnRanks, ContiguousThenStrided) {
  for (bool contiguous : {false, true}) {
    Tensor any = random({8, 12});
    Tensor rowsEqual = random({1, 12}, 2).expand({8, 12}).clone();
    Tensor columnsEqual = random({8, 1}, 3).expand({8, 12}).clone();
    auto every = [](const Tensor& t, int64_t rows, int64_t columns) {
      Tensor wide = Tensor::zeros({rows * t.size(0), columns * t.size(1)}, t.dtype());
      Tensor view = wide.slice(0, 0, wide.size(0), rows).slice(1, 0, wide.size(1), columns);
      view.copyFrom(t);
      return view;
    };
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* x = contiguous ? makeContigConcreteTensor({8, 12}) : makeConcreteTensor({8, 12});
          f.addInput(x);
          f.addOutput(softmax(x, 1));
          f.addOutput(sum(x, {0}));
          f.addOutput(matmul(transpose(x), x));
          TensorView* whole = set(x);
          whole->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
          f.addOutput(whole);
          TensorView* columns = set(x);
          f.addOutput(columns);
          cut(columns, 1, ranks);
          cut(x, 0, ranks);
        },
        {{{any}},
         {{any}, [](const Tensor& t) { return t.transpose(0, 1).clone().transpose(0, 1); }},
         {{any}, [=](const Tensor& t) { return every(t, 1, 2); }},
         {{any}, [=](const Tensor& t) { return every(t, 2, 1); }},
         {{rowsEqual},
          [](const Tensor& t) {
            return t.slice(0, 0, 1).expand({t.size(0), t.size(1)});
          }},
         {{columnsEqual},
          [](const Tensor& t) {
            return t.slice(1, 0, 1).expand({t.size(0), t.size(1)});
          }},
         {{any}}});
  }
}

// Aligned, then shards that start 1 and 3 elements later in their buffer; some are read by a collective as they are.
TEST(OnRanks, MisalignedShards) {
  for (DataType type : {DataType::Double, DataType::Float, DataType::Half, DataType::BFloat16, DataType::Int,
                        DataType::Int32, DataType::Bool}) {
    auto from = [](int64_t start) -> ShardLayout {
      return [=](const Tensor& t) {
        Tensor view = Tensor::zeros({t.numel() + start}, t.dtype()).slice(0, start, start + t.numel());
        view.copyFrom(t);
        return view;
      };
    };
    for (int64_t length : {1, 5, 16, 33}) {
      std::vector<RankCall> calls;
      for (int64_t start : {0, 1, 3}) {
        calls.push_back({{random({4 * length}, 1, type), random({4 * length}, 2, type)}, from(start)});
      }
      expectAgreesOnRanks(
          [=](Fusion& f, int64_t ranks) {
            TensorView* x = makeContigConcreteTensor({4 * length}, type);
            TensorView* y = makeContigConcreteTensor({4 * length}, type);
            f.addInput(x);
            f.addInput(y);
            f.addOutput(type == DataType::Bool ? logical_and(x, y) : add(x, y));
            f.addOutput(max(x, {0}));
            TensorView* whole = set(y);
            f.addOutput(whole);
            whole->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
            cut(x, 0, ranks);
            cut(y, 0, ranks);
          },
          calls);
    }
  }
}

// NaN, infinities and signed zeros on one rank or on all, in reductions over the cut dim: four elements are one a rank.
TEST(OnRanks, SpecialValuesOverTheCutDim) {
  for (DataType type : {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16}) {
    for (int64_t length : {4, 20, 100}) {
      expectAgreesOnRanks(
          [=](Fusion& f, int64_t ranks) {
            TensorView* x = makeContigConcreteTensor({length, stressRowCount()}, type);
            f.addInput(x);
            f.addOutput(max(x, {0}));
            f.addOutput(min(x, {0}));
            f.addOutput(max(x, {0, 1}));
            f.addOutput(min(x, {0, 1}));
            f.addOutput(softmax(x, 0));
            f.addOutput(log_softmax(x, 0));
            f.addOutput(max(x, {1}));
            f.addOutput(softmax(x, 1));
            f.addOutput(any(isnan(x), {0}));
            f.addOutput(where(gt(x, 0.0), x, neg(x)));
            cut(x, 0, ranks);
          },
          {{{stressRows(length, type).transpose(0, 1).clone()}}});
    }
  }
}

TEST(OnRanks, CastsInTheMiddle) {
  Tensor x = Tensor::empty({8, 16}, DataType::Float);
  for (int64_t i = 0; i < 128; i++) {
    x.set(std::vector<int64_t>{i / 16, i % 16}, (static_cast<double>(i) - 64) * 1.00390625);
  }
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* in = makeContigConcreteTensor({8, 16});
        f.addInput(in);
        TensorView* rounded = castOp(DataType::Float, castOp(DataType::BFloat16, in));
        f.addOutput(eq(rounded, in));
        f.addOutput(floor(rounded));
        f.addOutput(max(rounded, {0}));
        f.addOutput(sum(castOp(DataType::BFloat16, in), {0}));
        cut(in, 0, ranks);
      },
      {{{x}}});
}

TEST(OnRanks, CastsThenIndex) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8});
        TensorView* table = makeContigConcreteTensor({304, 4});
        f.addInput(x);
        f.addInput(table);
        TensorView* index = castOp(DataType::Int, castOp(DataType::Float, castOp(DataType::BFloat16, x)));
        f.addOutput(neg(index_select(table, 0, index)));
        f.addOutput(takeAlongAxis(table, broadcast(index, {false, true}), 0));
        cut(x, 0, ranks);
        cut(table, 0, ranks);
      },
      {{{Tensor::of({255.4, 256.9, 257.2, 0.998, 0.999, 299.5, 3, 130.7}, {8}), random({304, 4}, 3)}}});
}

TEST(OnRanks, CastsAcrossASegment) {
  for (bool forced : {false, true}) {
    for (DataType narrow : {DataType::BFloat16, DataType::Half}) {
      expectAgreesOnRanks(
          [=](Fusion& f, int64_t ranks) {
            TensorView* x = makeContigConcreteTensor({200}, narrow);
            TensorView* y = makeContigConcreteTensor({200}, narrow);
            f.addInput(x);
            f.addInput(y);
            TensorView* negative = neg(x);
            TensorView* chosen = where(gt(x, y), negative, castOp(narrow, mul(y, 1.001)));
            chosen = forced ? segment_set(chosen) : chosen;
            f.addOutput(eq(chosen, negative));
            f.addOutput(castOp(narrow, add(chosen, x)));
            f.addOutput(floor(castOp(DataType::Float, chosen)));
            TensorView* whole = neg(chosen);
            f.addOutput(whole);
            whole->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
            cut(x, 0, ranks);
            cut(y, 0, ranks);
          },
          {{{randomTensor({200}, narrow, 3, -100, 100), randomTensor({200}, narrow, 4, -100, 100)}}});
    }
  }
}

TEST(OnRanks, LongChains) {
  for (int64_t length : {101, 1000}) {
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* x = makeContigConcreteTensor({8, 5});
          f.addInput(x);
          cut(x, 0, ranks);
          TensorView* y = x;
          for (int64_t i = 0; i < length; i++) {
            y = i % 2 == 0 ? mul(y, 0.75) : add(y, 0.5);
          }
          f.addOutput(y);
          f.addOutput(sum(y, {0}));
        },
        {{{random({8, 5})}}}, Verify::Off);
  }
}

TEST(OnRanks, SumOfTwoHundredInputs) {
  std::vector<Argument> inputs;
  for (uint64_t i = 0; i < 200; i++) {
    inputs.emplace_back(random({8, 3}, i));
  }
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* total = nullptr;
        for (int i = 0; i < 200; i++) {
          TensorView* x = makeContigConcreteTensor({8, 3});
          f.addInput(x);
          cut(x, 0, ranks);
          total = total == nullptr ? x : add(total, x);
        }
        f.addOutput(total);
        f.addOutput(sum(total, {0}));
      },
      {{inputs}}, Verify::Off);
}

// Small whole numbers: two updates are exact.
TEST(OnRanks, OptimiserOverFiveHundredTensors) {
  constexpr int64_t kTensors = kSanitized ? 125 : 500;
  auto columns = [](int64_t i) { return 3 + i % 5; };
  std::vector<Argument> inputs = {0.125};
  for (int64_t i = 0; i < kTensors; i++) {
    for (uint64_t k = 0; k < 3; k++) {
      inputs.emplace_back(
          randomTensor({8, columns(i)}, DataType::Int, static_cast<uint64_t>(i) * 3 + k, -8, 8).to(DataType::Float));
    }
  }
  expectAgreesOnRanks(
      [&](Fusion& f, int64_t ranks) {
        Val* rate = IrBuilder::create<Val>(DataType::Double);
        f.addInput(rate);
        for (int64_t i = 0; i < kTensors; i++) {
          auto state = [&] {
            TensorView* t = makeContigConcreteTensor({8, columns(i)});
            f.addInput(t);
            return cut(t, 0, ranks);
          };
          TensorView* w = state();
          TensorView* g = state();
          TensorView* m = state();
          TensorView* momentum = add(mul(m, 0.5), g);
          TensorView* next = sub(w, mul(momentum, rate));
          f.addOutput(next);
          f.addOutput(momentum);
          f.aliasOutputToInput(next, w);
          f.aliasOutputToInput(momentum, m);
        }
      },
      {{inputs}}, Verify::Off);
}

TEST(OnRanks, EightDimsMostOfThemOne) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({1, 8, 1, 1, 6, 1, 1, 1});
        f.addInput(x);
        f.addOutput(tanh(x));
        f.addOutput(sum(x, {1}));
        f.addOutput(sum(x, {0, 4, 7}));
        f.addOutput(permute(x, {7, 4, 0, 1, 5, 2, 6, 3}));
        f.addOutput(softmax(x, 4));
        f.addOutput(squeeze(x));
        cut(x, 1, ranks);
      },
      {{{random({1, 8, 1, 1, 6, 1, 1, 1})}}});
}

TEST(OnRanks, PadsAndSlicesToOneThatBroadcastAgain) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 5});
        f.addInput(x);
        f.addOutput(add(pad(x, {-2, -2, 0, 0}), x));
        f.addOutput(add(slice(x, {0, 4}, {8, 5}), x));
        f.addOutput(sum(expand(pad(x, {0, -4}), {8, 7}), {0}));
        cut(x, 0, ranks);
      },
      {{{random({8, 5})}}});
}

TEST(OnRanks, PadsAndCatsOfExtentOne) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({1, 8});
        TensorView* y = makeContigConcreteTensor({4, 8});
        f.addInput(x);
        f.addInput(y);
        f.addOutput(add(pad(x, {0, 0, 1, 2}, 9.0), y));
        f.addOutput(mul(add(pad(x, {0, 0, 1, -1}), y), 2.0));
        f.addOutput(softmax(pad(x, {0, 0, 2, 1}), 0));
        f.addOutput(sum(cat({x, y, x}, 0), {1}));
        f.addOutput(add(cat({x, x, x, x}, 0), y));
        f.addOutput(mul(slice(expand(x, {6, 8}), {2, 0}, {6, 8}), y));
        f.addOutput(sum(pad(broadcast(squeeze(x), {true, false}), {0, 0, 0, 3}, 1.0), {0, 1}));
        cut(x, 1, ranks);
        cut(y, 1, ranks);
      },
      {{{random({1, 8}), random({4, 8}, 2)}}});
}

TEST(OnRanks, WindowsAlongTheCutDim) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 5});
        f.addInput(x);
        f.addOutput(add(slice(x, {3, 0}, {4, 5}), 1.0));
        f.addOutput(neg(pad(x, {0, 0, 1, 2}, 3.0)));
        f.addOutput(exp(cat({x, x}, 0)));
        f.addOutput(mul(x, slice(x, {7, 0}, {8, 5})));
        cut(x, 0, ranks);
      },
      {{{random({8, 5})}}});
}

}  // namespace

}  // namespace meshfuse
