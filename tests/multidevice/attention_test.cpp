// Attention with heads, sequence or keys cut, and exactly the communication each must take.
#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

constexpr DataType kTypes[] = {DataType::Float, DataType::Half, DataType::BFloat16};

class Attention : public ScenarioTest {
 protected:
  static constexpr int64_t kBatch = 2, kFeatures = 4;  // features of a head

  // [B, S, H, D] -> [B, H, S, D], and back.
  static TensorView* headsFirst(TensorView* x) { return permute(x, {0, 2, 1, 3}); }
  // Slice `which` of the features of qkv [B, S, H, 3 D].
  static TensorView* third(TensorView* qkv, int64_t which) {
    const int64_t width = qkv->shape()[3].constValue() / 3;
    std::vector<int64_t> starts(4, 0);
    std::vector<int64_t> stops;
    for (const IntExpr& extent : qkv->shape()) {
      stops.push_back(extent.constValue());
    }
    starts[3] = which * width;
    stops[3] = (which + 1) * width;
    return headsFirst(slice(qkv, starts, stops));
  }
  // Of qkv [B, S, H, 3 D]: [B, S, H, D].
  static TensorView* ofPacked(TensorView* qkv, bool causal) {
    return headsFirst(sdpfa_fwd(third(qkv, 0), third(qkv, 1), third(qkv, 2), 0.0, causal).output);
  }
  static TensorView* cutInput(Fusion& f, std::vector<int64_t> shape, const DeviceMesh& mesh, int dim,
                              DataType type = DataType::Float) {
    TensorView* tv = input(f, std::move(shape), mesh, type);
    shardBlock(tv, dim, mesh, "x");
    return tv;
  }
};

TEST_F(Attention, OverCutHeadsNeedsNoCommunication) {
  for (DataType type : kTypes) {
    for (bool causal : {false, true}) {
      runScenario([=](int64_t n) {
        const std::vector<int64_t> shape = {kBatch, 6, 2 * n, 3 * kFeatures};
        return Scenario{[=](Fusion& f) { f.addOutput(ofPacked(cutInput(f, shape, axisX(n), 2, type), causal)); },
                        {random(shape, 1, type)},
                        {{}, -1, 0}};
      });
    }
  }
}

// Between the two products stands one kernel: scale, mask, softmax and casts.
TEST_F(Attention, IsOneKernelBetweenLibraryCalls) {
  for (DataType type : kTypes) {
    runScenario([=](int64_t n) {
      const std::vector<int64_t> shape = {kBatch, n, 6, kFeatures};
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* q = cutInput(f, shape, mesh, 1, type);
                        TensorView* k = cutInput(f, shape, mesh, 1, type);
                        TensorView* v = cutInput(f, shape, mesh, 1, type);
                        const SdpfaFwdResult r = sdpfa_fwd(q, k, v, 0.0, true);
                        f.addOutput(r.output);
                        f.addOutput(r.log_sumexp);
                      },
                      {random(shape, 1, type), random(shape, 2, type), random(shape, 3, type)},
                      {{}, 1, 0}};
    });
  }
}

// Projections cut over heads, one for all three, and the one back: nothing but that product's sum.
TEST_F(Attention, BlockWithProjectionsTakesOneAllReduce) {
  constexpr int64_t kRows = 6, kWidth = 8;
  for (DataType type : kTypes) {
    for (bool biases : {false, true}) {
      runScenario([=](int64_t n) {
        const int64_t heads = 2 * n;
        std::vector<Argument> inputs = {random({kBatch, kRows, kWidth}, 1, type),
                                        random({heads * 3 * kFeatures, kWidth}, 2, type),
                                        random({kWidth, heads * kFeatures}, 3, type)};
        if (biases) {
          inputs.emplace_back(random({heads * 3 * kFeatures}, 4, type));
          inputs.emplace_back(random({kWidth}, 5, type));
        }
        return Scenario{[=](Fusion& f) {
                          const DeviceMesh mesh = axisX(n);
                          TensorView* x = input(f, {kBatch, kRows, kWidth}, mesh, type);
                          TensorView* in = cutInput(f, {heads * 3 * kFeatures, kWidth}, mesh, 0, type);
                          TensorView* out = cutInput(f, {kWidth, heads * kFeatures}, mesh, 1, type);
                          TensorView* inBias = nullptr;
                          TensorView* outBias = nullptr;
                          if (biases) {
                            inBias = cutInput(f, {heads * 3 * kFeatures}, mesh, 0, type);
                            outBias = input(f, {kWidth}, mesh, type);
                          }
                          TensorView* qkv = reshape(linear(x, in, inBias), {kBatch, kRows, heads, 3 * kFeatures});
                          TensorView* mixed = reshape(ofPacked(qkv, true), {kBatch, kRows, heads * kFeatures});
                          f.addOutput(linear(mixed, out, outBias));
                        },
                        inputs,
                        {among(n, "all-reduce"), -1, allReduceBytes(kBatch * kRows * kWidth, n, dataTypeSize(type))}};
      });
    }
  }
}

TEST_F(Attention, BackwardOverCutHeadsNeedsNoCommunication) {
  for (DataType type : kTypes) {
    runScenario([=](int64_t n) {
      const std::vector<int64_t> shape = {kBatch, 6, 2 * n, 3 * kFeatures};
      const std::vector<int64_t> result = {kBatch, 6, 2 * n, kFeatures};
      return Scenario{
          [=](Fusion& f) {
            const DeviceMesh mesh = axisX(n);
            TensorView* qkv = cutInput(f, shape, mesh, 2, type);
            TensorView* dy = headsFirst(cutInput(f, result, mesh, 2, type));
            TensorView* q = third(qkv, 0);
            TensorView* k = third(qkv, 1);
            TensorView* v = third(qkv, 2);
            const SdpfaFwdResult y = sdpfa_fwd(q, k, v, 0.0, true);
            const SdpfaBwdResult d = sdpfa_bwd(dy, q, k, v, y.output, y.log_sumexp, nullptr, 0.0, true);
            f.addOutput(cat({headsFirst(d.grad_query), headsFirst(d.grad_key), headsFirst(d.grad_value)}, 3));
          },
          {random(shape, 1, type), random(result, 2, type)},
          {{}, -1, 0}};
    });
  }
}

TEST_F(Attention, DropsTheSameEntriesOnEveryMesh) {
  runScenario([](int64_t n) {
    const std::vector<int64_t> shape = {kBatch, 6, 4, 3 * kFeatures};
    return Scenario{[=](Fusion& f) {
                      TensorView* qkv = cutInput(f, shape, axisX(n), 2);
                      const SdpfaFwdResult r = sdpfa_fwd(third(qkv, 0), third(qkv, 1), third(qkv, 2), 0.25);
                      f.addOutput(headsFirst(r.output));
                      f.addOutput(r.dropout_mask);
                    },
                    {random(shape, 1)},
                    {{}, -1, 0}};
  });
}

// Forward and backward with the gradients of both weights: what the input gets from all heads is the only other sum.
TEST_F(Attention, BlockAndItsBackwardTakeAnAllReduceEach) {
  constexpr int64_t kRows = 6, kWidth = 8;
  runScenario([](int64_t n) {
    const int64_t heads = 2 * n;
    const std::vector<std::string> steps(n > 1 ? 2 : 0, n > 1 ? among(n, "all-reduce")[0] : "");
    return Scenario{
        [=](Fusion& f) {
          const DeviceMesh mesh = axisX(n);
          TensorView* x = input(f, {kBatch * kRows, kWidth}, mesh);
          TensorView* in = cutInput(f, {heads * 3 * kFeatures, kWidth}, mesh, 0);
          TensorView* out = cutInput(f, {kWidth, heads * kFeatures}, mesh, 1);
          TensorView* dy = input(f, {kBatch * kRows, kWidth}, mesh);
          TensorView* qkv = reshape(linear(x, in), {kBatch, kRows, heads, 3 * kFeatures});
          TensorView* q = third(qkv, 0);
          TensorView* k = third(qkv, 1);
          TensorView* v = third(qkv, 2);
          const SdpfaFwdResult y = sdpfa_fwd(q, k, v, 0.0, true);
          TensorView* mixed = reshape(headsFirst(y.output), {kBatch * kRows, heads * kFeatures});
          f.addOutput(linear(mixed, out));
          TensorView* dMixed = reshape(matmul(dy, out), {kBatch, kRows, heads, kFeatures});
          const SdpfaBwdResult d = sdpfa_bwd(headsFirst(dMixed), q, k, v, y.output, y.log_sumexp, nullptr, 0.0, true);
          TensorView* dQkv = cat({headsFirst(d.grad_query), headsFirst(d.grad_key), headsFirst(d.grad_value)}, 3);
          dQkv = reshape(dQkv, {kBatch * kRows, heads * 3 * kFeatures});
          f.addOutput(matmul(dQkv, in));
          f.addOutput(matmul(transpose(dQkv), x));
          f.addOutput(matmul(transpose(dy), mixed));
        },
        {random({kBatch * kRows, kWidth}, 1), random({heads * 3 * kFeatures, kWidth}, 2),
         random({kWidth, heads * kFeatures}, 3), random({kBatch * kRows, kWidth}, 4)},
        {steps, -1, 2 * allReduceBytes(kBatch * kRows * kWidth, n)},
        {},
        {.bucketBytes = 0}};  // large ones, as which these stand, are not packed
  });
}

TEST_F(Attention, GroupsOfCutHeadsNeedNoCommunication) {
  runScenario([](int64_t n) {
    const int64_t groups = 2 * n, heads = 3 * groups;
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* q = cutInput(f, {kBatch, heads, 6, kFeatures}, mesh, 1);
                      TensorView* k = cutInput(f, {kBatch, groups, 5, kFeatures}, mesh, 1);
                      TensorView* v = cutInput(f, {kBatch, groups, 5, kFeatures}, mesh, 1);
                      f.addOutput(sdpfa_fwd(q, k, v).output);
                    },
                    {random({kBatch, heads, 6, kFeatures}, 1), random({kBatch, groups, 5, kFeatures}, 2),
                     random({kBatch, groups, 5, kFeatures}, 3)},
                    {{}, -1, 0}};
  });
}

// Parts of keys and values: the largest score and the sum of each row, then the sum of the weighted values.
TEST_F(Attention, OverCutKeysReducesRowsNotScores) {
  runScenario([](int64_t n) {
    const int64_t heads = 3, rows = 6, columns = 2 * n;
    std::vector<std::string> steps;
    for (int k = 0; k < 3 && n > 1; k++) {
      steps.push_back(among(n, "all-reduce")[0]);
    }
    return Scenario{
        [=](Fusion& f) {
          const DeviceMesh mesh = axisX(n);
          TensorView* q = input(f, {kBatch, heads, rows, kFeatures}, mesh);
          TensorView* k = cutInput(f, {kBatch, heads, columns, kFeatures}, mesh, 2);
          TensorView* v = cutInput(f, {kBatch, heads, columns, kFeatures}, mesh, 2);
          const SdpfaFwdResult r = sdpfa_fwd(q, k, v, 0.0, true);
          f.addOutput(r.output);
          f.addOutput(r.log_sumexp);
        },
        {random({kBatch, heads, rows, kFeatures}, 1), random({kBatch, heads, columns, kFeatures}, 2),
         random({kBatch, heads, columns, kFeatures}, 3)},
        {steps, -1,
         2 * allReduceBytes(kBatch * heads * rows, n) + allReduceBytes(kBatch * heads * rows * kFeatures, n)}};
  });
}

class SequenceToHeads : public Attention {
 protected:
  static constexpr int64_t kPart = 3;  // of the sequence, on each rank

  static TensorView* toHeads(TensorView* x, const DeviceMesh& mesh) {
    TensorView* y = set(x);
    y->setDeviceMesh(mesh);
    shardBlock(y, 2, mesh, "x");
    return y;
  }
  // An output whose sequence dim is cut.
  static void backToSequence(Fusion& f, TensorView* x, const DeviceMesh& mesh) {
    shardBlock(output(f, set(x), mesh), 1, mesh, "x");
  }
  // What a rank receives when [B, S, H, width], `perRank` heads a rank, changes from cut rows to cut heads or back.
  static int64_t exchanged(int64_t n, int64_t perRank, int64_t width) {
    return kBatch * kPart * perRank * width * (n - 1) * 4;
  }
  static std::vector<std::string> exchanges(int64_t n, int count) {
    std::vector<std::string> steps;
    for (int k = 0; k < count && n > 1; k++) {
      steps.push_back(among(n, "all-to-all")[0]);
    }
    return steps;
  }
};

TEST_F(SequenceToHeads, PackedIsOneAllToAllEachWay) {
  runScenario([](int64_t n) {
    const std::vector<int64_t> shape = {kBatch, kPart * n, 2 * n, 3 * kFeatures};
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* qkv = cutInput(f, shape, mesh, 1);
                      backToSequence(f, ofPacked(toHeads(qkv, mesh), true), mesh);
                    },
                    {random(shape, 1)},
                    {exchanges(n, 2), -1, exchanged(n, 2, 3 * kFeatures) + exchanged(n, 2, kFeatures)}};
  });
}

// Three tensors that are exchanged before they are used are one exchange where they are small.
TEST_F(SequenceToHeads, ApartIsOneAllToAllForSmallTensorsAndOneForEachLargeOne) {
  for (const bool small : {true, false}) {
    runScenario([=](int64_t n) {
      const std::vector<int64_t> shape = {kBatch, kPart * n, 2 * n, kFeatures};
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        std::vector<TensorView*> in;
                        for (int k = 0; k < 3; k++) {
                          in.push_back(cutInput(f, shape, mesh, 1));
                        }
                        const SdpfaFwdResult r =
                            sdpfa_fwd(headsFirst(toHeads(in[0], mesh)), headsFirst(toHeads(in[1], mesh)),
                                      headsFirst(toHeads(in[2], mesh)));
                        backToSequence(f, headsFirst(r.output), mesh);
                      },
                      {random(shape, 1), random(shape, 2), random(shape, 3)},
                      {exchanges(n, small ? 2 : 4), -1, 4 * exchanged(n, 2, kFeatures)},
                      {},
                      {.bucketBytes = small ? PassSettings{}.bucketBytes : 0}};
    });
  }
}

// Half as many groups as ranks: two ranks read the keys and values of a group. These are exchanged among the ranks of different
// groups, and gathered among those of one alone: over a part of the axis.
TEST_F(SequenceToHeads, FewerGroupsThanRanksGatherKeysAndValuesOverAPartOfTheAxis) {
  runScenario([](int64_t n) {
    const int64_t groups = std::max<int64_t>(n / 2, 1), heads = 2 * n, rows = kPart * n;
    std::vector<std::string> steps;
    if (n > 1) {
      steps = among(n, "all-to-all");
      for (int kv = 0; kv < (groups > 1 ? 2 : 1); kv++) {  // two gathers alone are one
        for (const std::vector<std::string>& step : {among(groups, "all-to-all"), among(n / groups, "all-gather")}) {
          steps.insert(steps.end(), step.begin(), step.end());
        }
      }
      steps.push_back(steps[0]);
    }
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* q = cutInput(f, {kBatch, rows, heads, kFeatures}, mesh, 1);
                      TensorView* k = cutInput(f, {kBatch, rows, groups, kFeatures}, mesh, 1);
                      TensorView* v = cutInput(f, {kBatch, rows, groups, kFeatures}, mesh, 1);
                      const SdpfaFwdResult r =
                          sdpfa_fwd(headsFirst(toHeads(q, mesh)), headsFirst(k), headsFirst(v), 0.0, true);
                      backToSequence(f, headsFirst(r.output), mesh);
                    },
                    {random({kBatch, rows, heads, kFeatures}, 1), random({kBatch, rows, groups, kFeatures}, 2),
                     random({kBatch, rows, groups, kFeatures}, 3)},
                    {steps, -1, 2 * exchanged(n, 2, kFeatures) + 2 * kBatch * kPart * (n - 1) * kFeatures * 4}};
  });
}

// The same with an axis for the groups and one for the ranks that share a group: keys and values change to cut groups among the
// former, and are gathered among the latter alone.
TEST_F(SequenceToHeads, KeysAndValuesOfSharedGroupsAreGatheredOverTheAxisThatSharesThem) {
  runScenario([](int64_t n) {
    const int64_t share = n % 2 == 0 ? 2 : 1, groups = n / share, heads = 2 * n, rows = kPart * n;
    const DeviceMesh mesh = DeviceMesh::create({{"group", groups}, {"share", share}});
    const auto cut = [=](TensorView* x, int dim) {
      shardBlock(x, dim, mesh, "group");
      shardBlock(x, dim + 1, mesh, "share");
      return x;
    };
    const auto add = [](std::vector<std::string>& to, const std::vector<std::string>& steps) {
      to.insert(to.end(), steps.begin(), steps.end());
    };
    std::vector<std::string> steps = among(n, "all-to-all");  // without others to share with, of all three in one
    if (share > 1) {
      for (int k = 0; k < (groups > 1 ? 2 : 1); k++) {  // two gathers alone are one
        add(steps, among(groups, "all-to-all"));
        add(steps, among(share, "all-gather"));
      }
    }
    add(steps, among(n, "all-to-all"));
    // each of keys and values: rows of all groups but one's own leave, then those of the ranks that share it arrive
    const int64_t whole = kBatch * rows * groups * kFeatures * 4;
    const int64_t each = whole / n * (groups - 1) / groups + whole / groups * (share - 1) / share;
    return Scenario{[=](Fusion& f) {
                      TensorView* q = cut(input(f, {kBatch, rows, heads, kFeatures}, mesh), 1);
                      TensorView* k = cut(input(f, {kBatch, rows, groups, kFeatures}, mesh), 1);
                      TensorView* v = cut(input(f, {kBatch, rows, groups, kFeatures}, mesh), 1);
                      TensorView* byHead = set(q);
                      byHead->setDeviceMesh(mesh);
                      cut(byHead, 2);
                      const SdpfaFwdResult r = sdpfa_fwd(headsFirst(byHead), headsFirst(k), headsFirst(v), 0.0, true);
                      cut(output(f, set(headsFirst(r.output)), mesh), 1);
                    },
                    {random({kBatch, rows, heads, kFeatures}, 1), random({kBatch, rows, groups, kFeatures}, 2),
                     random({kBatch, rows, groups, kFeatures}, 3)},
                    {steps, -1, 2 * exchanged(n, 2, kFeatures) + 2 * each}};
  });
}

}  // namespace

}  // namespace meshfuse
