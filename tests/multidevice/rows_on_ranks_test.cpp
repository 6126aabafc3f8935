// Norms, softmax, losses and positions of the largest along a dim that is cut: what crosses ranks is some numbers a row, never a
// row.
#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

constexpr int64_t kRows = 6;

std::vector<std::string> allReduces(int64_t n, int count) {
  std::vector<std::string> steps;
  for (int k = 0; k < count && n > 1; k++) {
    steps.push_back(among(n, "all-reduce")[0]);
  }
  return steps;
}

// Sums and squared distances of rows: the parts' are gathered, where these have several elements.
Expected variances(int64_t n, int64_t width, int64_t rows = kRows) {
  return (width + n - 1) / n > 1 ? Expected{among(n, "all-gather"), -1, 3 * rows * 4 * (n - 1)}
                                 : Expected{allReduces(n, 2), -1, 2 * allReduceBytes(rows, n)};
}

class RowsOnRanks : public ScenarioTest {
 protected:
  using Build = std::function<void(Fusion&, TensorView* x, const DeviceMesh&)>;
  // Programs over x [rows, width], whose last dim is cut.
  void takes(const std::function<Expected(int64_t n, int64_t width)>& expected, const Build& build, DataType type) {
    // 10 columns on 4 ranks are 3, 3, 3 and 1; 5 columns are 2, 2, 1 and none
    for (int64_t width : {16, 10, 5}) {
      runScenario([&](int64_t n) {
        return Scenario{[&build, type, width, n](Fusion& f) {
                          const DeviceMesh mesh = axisX(n);
                          TensorView* x = input(f, {kRows, width}, mesh, type);
                          shardBlock(x, 1, mesh, "x");
                          build(f, x, mesh);
                        },
                        {random({kRows, width}, 1, type)},
                        expected(n, width)};
      });
    }
  }
  // Such that take the variance of rows across the ranks.
  void takesVariances(const Build& build, DataType type = DataType::Float) {
    takes([](int64_t n, int64_t width) { return variances(n, width); }, build, type);
  }
  // Such that take `count` numbers a row.
  void takesNumbersARow(int count, const Build& build, DataType type = DataType::Float, int64_t bytesOfNumber = 4) {
    takes(
        [=](int64_t n, int64_t) {
          return Expected{allReduces(n, count), -1, count * allReduceBytes(kRows, n, bytesOfNumber)};
        },
        build, type);
  }
};

TEST_F(RowsOnRanks, LayerNormGathersTheVariancesOfParts) {
  for (DataType type : {DataType::Float, DataType::BFloat16}) {
    takesVariances(
        [type](Fusion& f, TensorView* x, const DeviceMesh&) {
          f.addOutput(castOp(type, layer_norm(x, 1, nullptr, nullptr, 1e-5).output));
        },
        type);
  }
}

TEST_F(RowsOnRanks, LayerNormWithCutWeightsGathersTheVariancesOfParts) {
  for (int64_t width : {16, 10}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* x = input(f, {kRows, width}, mesh);
                        TensorView* w = input(f, {width}, mesh);
                        TensorView* b = input(f, {width}, mesh);
                        shardBlock(x, 1, mesh, "x");
                        shardBlock(w, 0, mesh, "x");
                        shardBlock(b, 0, mesh, "x");
                        const ForwardNormResult r = layer_norm(x, 1, w, b, 1e-5);
                        f.addOutput(r.output);
                        f.addOutput(r.mean);
                        f.addOutput(r.invstd);
                      },
                      {random({kRows, width}, 1), random({width}, 2), random({width}, 3)},
                      variances(n, width)};
    });
  }
}

// The gradients of weight and bias are sums over rows that no rank shares; the two numbers a row travel together.
TEST_F(RowsOnRanks, LayerNormBackwardTakesOneOfTwoNumbers) {
  for (int64_t width : {16, 10}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* dy = input(f, {kRows, width}, mesh);
                        TensorView* x = input(f, {kRows, width}, mesh);
                        TensorView* mean = input(f, {kRows, 1}, mesh);
                        TensorView* invstd = input(f, {kRows, 1}, mesh);
                        TensorView* w = input(f, {width}, mesh);
                        TensorView* b = input(f, {width}, mesh);
                        shardBlock(dy, 1, mesh, "x");
                        shardBlock(x, 1, mesh, "x");
                        shardBlock(w, 0, mesh, "x");
                        shardBlock(b, 0, mesh, "x");
                        const BackwardNormResult r = layer_norm_backward(dy, x, {width}, mean, invstd, w, b);
                        f.addOutput(r.grad_input);
                        f.addOutput(r.grad_weight);
                        f.addOutput(r.grad_bias);
                      },
                      {random({kRows, width}, 1), random({kRows, width}, 2), random({kRows, 1}, 3),
                       randomTensor({kRows, 1}, DataType::Float, 4, 0.5, 2), random({width}, 5), random({width}, 6)},
                      {allReduces(n, 1), -1, allReduceBytes(2 * kRows, n)}};
    });
  }
}

TEST_F(RowsOnRanks, RmsNormTakesOne) {
  takesNumbersARow(
      1, [](Fusion& f, TensorView* x, const DeviceMesh&) { f.addOutput(rms_norm(x, 1, nullptr, 1e-5).output); });
}

TEST_F(RowsOnRanks, VarianceWithMeanGathersTheVariancesOfParts) {
  takesVariances([](Fusion& f, TensorView* x, const DeviceMesh& mesh) {
    const VarMeanResult r = variance_mean(x, {1});
    output(f, r.var, mesh);
    output(f, r.mean, mesh);
  });
}

// Three numbers a row and part are more bytes than two all-reduces take: with many rows they cost more than a call.
TEST_F(RowsOnRanks, VariancesOfManyRowsTakeTwoAllReduces) {
  constexpr int64_t kMany = 720;  // small enough that a rank reads all of it from each
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {kMany, 10}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      const VarMeanResult r = variance_mean(x, {1});
                      output(f, r.var, mesh);
                      output(f, r.mean, mesh);
                    },
                    {random({kMany, 10}, 1)},
                    {allReduces(n, 2), -1, 2 * allReduceBytes(kMany, n)}};
  });
}

// Rows that each rank wants a part of. The means are gathered: every rank needs all of them for its distances.
TEST_F(RowsOnRanks, VarianceWithMeanToCutRowsScattersBoth) {
  runScenario([](int64_t n) {
    std::vector<std::string> steps;
    for (const char* step : {"reduce-scatter", "all-gather", "reduce-scatter"}) {
      for (const std::string& s : among(n, step)) {
        steps.push_back(s);
      }
    }
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {3 * n, 10}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      const VarMeanResult r = variance_mean(x, {1});
                      shardBlock(output(f, set(r.var), mesh), 0, mesh, "x");
                      shardBlock(output(f, set(r.mean), mesh), 0, mesh, "x");
                    },
                    {random({3 * n, 10}, 1)},
                    {steps, -1, 3 * 3 * (n - 1) * 4}};
  });
}

TEST_F(RowsOnRanks, WelfordGathersTheVariancesOfPartsAndCountsTheWhole) {
  takesVariances([](Fusion& f, TensorView* x, const DeviceMesh& mesh) {
    const WelfordResult r = Welford(x, {1});
    output(f, r.avg, mesh);
    output(f, r.var_sum, mesh);
    output(f, r.n, mesh);
  });
}

TEST_F(RowsOnRanks, SoftmaxTakesTwo) {
  for (bool log : {false, true}) {
    takesNumbersARow(2, [log](Fusion& f, TensorView* x, const DeviceMesh&) {
      f.addOutput(log ? log_softmax(x, 1) : softmax(x, 1));
    });
  }
}

TEST_F(RowsOnRanks, LogOfSumOfExponentialsTakesTwo) {
  takesNumbersARow(2, [](Fusion& f, TensorView* x, const DeviceMesh& mesh) {
    TensorView* largest = max(x, {1});
    output(f, add(largest, log(sum(exp(sub(x, unsqueeze(largest, 1))), {1}))), mesh);
  });
}

// The largest, then the first position that has it: two numbers, whatever the width.
TEST_F(RowsOnRanks, PositionsOfTheExtremesTakeTwo) {
  for (bool largest : {false, true}) {
    for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Int32}) {
      takesNumbersARow(
          2,
          [largest](Fusion& f, TensorView* x, const DeviceMesh& mesh) {
            output(f, largest ? argmax(x, 1) : argmin(x, 1), mesh);
          },
          type);
    }
  }
}

// Rows of equal elements: the first position counts, on whichever rank it is.
TEST_F(RowsOnRanks, TheFirstOfEqualOnesIsChosen) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {kRows, 10}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      output(f, argmax(x, 1), mesh);
                      output(f, argmax(x), mesh);
                    },
                    {randomTensor({kRows, 10}, DataType::Int, 1, 0, 2).to(DataType::Float)},
                    {allReduces(n, 2), -1, 2 * allReduceBytes(kRows + 1, n)}};
  });
}

class VocabularyOnRanks : public ScenarioTest {
 protected:
  // Of each row, 0 where the target is -1.
  static TensorView* crossEntropy(TensorView* logits, TensorView* target) {
    return cross_entropy(logits, target, {.reduction = LossReduction::None, .ignore_index = -1});
  }
  // -log(softmax(logits)[target]) of each row, 0 where `counts` is false.
  static TensorView* crossEntropy(TensorView* logits, TensorView* target, TensorView* counts) {
    TensorView* largest = max(logits, {1});
    TensorView* logSum = add(largest, log(sum(exp(sub(logits, unsqueeze(largest, 1))), {1})));
    TensorView* picked = squeeze(takeAlongAxis(logits, unsqueeze(where(counts, target, 0), 1), 1), 1);
    return where(counts, sub(logSum, picked), 0.0);
  }
  // Of the sum of these.
  static TensorView* gradient(TensorView* logits, TensorView* target) {
    TensorView* dy = full(logits->fusion(), std::vector<int64_t>{}, 1, DataType::Float);
    return cross_entropy_backward(dy, logits, target, {.reduction = LossReduction::Sum, .ignore_index = -1});
  }
  // softmax - 1 at the target, 0 where `rows` is false.
  static TensorView* gradient(TensorView* logits, TensorView* target, TensorView* rows) {
    const IntExpr width = logits->shape()[1];
    TensorView* hit = eq(unsqueeze(target, 1), unsqueeze(iota(logits->fusion(), width), 0));
    TensorView* counts = unsqueeze(rows, 1);
    return where(counts, sub(softmax(logits, 1), castOp(DataType::Float, hit)), 0.0);
  }
  static Tensor targets(int64_t vocabulary) {
    Tensor t = randomTensor({kRows}, DataType::Int, 9, 0, static_cast<double>(vocabulary));
    t.set(std::vector<int64_t>{2}, -1);
    t.set(std::vector<int64_t>{3}, static_cast<double>(vocabulary) - 1);
    return t;
  }
};

// The largest of each row, then its sum and the target's logit in one; the gradient stays where its logits are.
TEST_F(VocabularyOnRanks, CrossEntropyTakesThreeNumbersARow) {
  for (int64_t vocabulary : {16, 10}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* logits = input(f, {kRows, vocabulary}, mesh);
                        TensorView* target = input(f, {kRows}, mesh, DataType::Int);
                        shardBlock(logits, 1, mesh, "x");
                        output(f, crossEntropy(logits, target), mesh);
                      },
                      {random({kRows, vocabulary}, 1), targets(vocabulary)},
                      {allReduces(n, 2), -1, allReduceBytes(kRows, n) + allReduceBytes(2 * kRows, n)}};
    });
  }
}

// Beyond the last word too: of 10 words in parts of 3, the ranks' last part has room for 10 and 11, and none has 13.
TEST_F(VocabularyOnRanks, TargetsThatAreNoWordsCountNothing) {
  for (const int64_t vocabulary : {16, 10}) {
    Tensor target = targets(vocabulary);
    target.set(std::vector<int64_t>{0}, static_cast<double>(vocabulary));
    target.set(std::vector<int64_t>{1}, static_cast<double>(vocabulary) + 1);
    target.set(std::vector<int64_t>{4}, static_cast<double>(vocabulary) + 3);
    for (const bool loss : {true, false}) {
      runScenario([=](int64_t n) {
        return Scenario{[=](Fusion& f) {
                          const DeviceMesh mesh = axisX(n);
                          TensorView* logits = input(f, {kRows, vocabulary}, mesh);
                          TensorView* words = input(f, {kRows}, mesh, DataType::Int);
                          shardBlock(logits, 1, mesh, "x");
                          TensorView* counts = logical_and(ge(words, 0), lt(words, vocabulary));
                          if (loss) {
                            output(f, crossEntropy(logits, words, counts), mesh);
                          } else {
                            f.addOutput(gradient(logits, words, counts));
                          }
                        },
                        {random({kRows, vocabulary}, 1), target},
                        {allReduces(n, 2), -1, allReduceBytes(kRows, n) + allReduceBytes((loss ? 2 : 1) * kRows, n)}};
      });
    }
  }
}

TEST_F(VocabularyOnRanks, GradientOfCrossEntropyTakesTwo) {
  for (int64_t vocabulary : {16, 10}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* logits = input(f, {kRows, vocabulary}, mesh);
                        TensorView* target = input(f, {kRows}, mesh, DataType::Int);
                        shardBlock(logits, 1, mesh, "x");
                        f.addOutput(gradient(logits, target));
                      },
                      {random({kRows, vocabulary}, 1), targets(vocabulary)},
                      {allReduces(n, 2), -1, 2 * allReduceBytes(kRows, n)}};
    });
  }
}

// From the hidden state to the mean loss, the head's weight cut over the vocabulary: three numbers a row, the last two in one; and the
// token that the model would say: one more, for the largest is known.
TEST_F(VocabularyOnRanks, LanguageModelHeadNeverGathersLogits) {
  for (int64_t vocabulary : {16, 10}) {
    runScenario([=](int64_t n) {
      constexpr int64_t kHidden = 8;
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* hidden = input(f, {kRows, kHidden}, mesh);
                        TensorView* weight = input(f, {vocabulary, kHidden}, mesh);
                        TensorView* target = input(f, {kRows}, mesh, DataType::Int);
                        shardBlock(weight, 0, mesh, "x");
                        TensorView* logits = linear(hidden, weight);
                        output(f, mean(crossEntropy(logits, target), {0}), mesh);
                        output(f, argmax(logits, 1), mesh);
                      },
                      {random({kRows, kHidden}, 1), random({vocabulary, kHidden}, 2), targets(vocabulary)},
                      {allReduces(n, 3), -1, 2 * allReduceBytes(kRows, n) + allReduceBytes(2 * kRows, n)}};
    });
  }
}

// Seven ranks hold 6283 words, the last one 6276.
TEST_F(VocabularyOnRanks, OddVocabularyOnEightRanks) {
  constexpr int64_t kVocabulary = 50257, kHidden = 4, kTokens = 2, n = 8;
  runScenarioOn(
      n, {[](Fusion& f) {
            const DeviceMesh mesh = axisX(n);
            TensorView* tokens = input(f, {kTokens}, mesh, DataType::Int);
            TensorView* table = input(f, {kVocabulary, kHidden}, mesh);
            TensorView* target = input(f, {kTokens}, mesh, DataType::Int);
            shardBlock(table, 0, mesh, "x");
            TensorView* logits = linear(tanh(embedding_fwd(tokens, table)), table);
            output(f, crossEntropy(logits, target), mesh);
            output(f, argmax(logits, 1), mesh);
          },
          {Tensor::of({50256, 6283}, {kTokens}, DataType::Int), random({kVocabulary, kHidden}, 1),
           Tensor::of({50255, 0}, {kTokens}, DataType::Int)},
          {allReduces(n, 4), -1,
           allReduceBytes(kTokens * kHidden, n) + 2 * allReduceBytes(kTokens, n) + allReduceBytes(2 * kTokens, n)}});
}

// Each rank adds the gradients of its own words; those of tokens in parts are gathered first.
TEST_F(VocabularyOnRanks, GradientOfAnEmbeddingStaysWithItsWords) {
  constexpr int64_t kHidden = 3;
  for (int64_t vocabulary : {16, 10, 5}) {
    for (bool inParts : {false, true}) {
      runScenario([=](int64_t n) {
        const int64_t tokens = 2 * n;
        Expected expected{{}, -1, 0};
        if (inParts && n > 1) {
          expected = {{among(n, "all-gather")[0], among(n, "all-gather")[0]}, -1, 2 * (n - 1) * (8 + 4 * kHidden)};
        }
        return Scenario{[=](Fusion& f) {
                          const DeviceMesh mesh = axisX(n);
                          TensorView* index = input(f, {tokens}, mesh, DataType::Int);
                          TensorView* dy = input(f, {tokens, kHidden}, mesh);
                          TensorView* before = input(f, {vocabulary, kHidden}, mesh);
                          shardBlock(before, 0, mesh, "x");
                          if (inParts) {
                            shardBlock(index, 0, mesh, "x");
                            shardBlock(dy, 0, mesh, "x");
                          }
                          f.addOutput(indexPutAccumulate(before, index, dy));
                        },
                        {randomTensor({tokens}, DataType::Int, 7, 0, static_cast<double>(vocabulary)),
                         random({tokens, kHidden}, 1), random({vocabulary, kHidden}, 2)},
                        expected};
      });
    }
  }
}

}  // namespace

}  // namespace meshfuse
