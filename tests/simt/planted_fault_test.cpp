// Six kinds of fault planted into the generated text of four families of kernels: the emulator must notice each of
// them.
//
// What a family does not have is written into it: a pointwise kernel gets an exchange through shared memory with a
// barrier, and a shuffle, before its faults are planted.
#include <gtest/gtest.h>

#include "simt/compare.h"
#include "tile/builder.h"

namespace meshfuse::simt {
namespace {

using namespace tile;
using enum DataType;

// Y[m, n] = 2 * X[m, n] with 8 lanes a row: 24 lanes of each warp repeat the work of others.
Example narrowDouble() {
  Builder b("narrow_double", Target::Gpu);
  IntExpr rows = b.size("M", {.lower = 1});
  IntExpr columns = b.size("N", {.lower = 1, .divisor = 4});
  int x = b.tensor({"X", Float, Memory::Input, {rows, columns}, {columns, 1}, 16, false});
  int y = b.tensor({"Y", Float, Memory::Output, {rows, columns}, {columns, 1}, 16, false});
  b.gridDim("pm", ceilDiv(rows, 4));
  int s = b.space("s", {{"m", rows, {{Level::Part, 0, "pm"}, {Level::Warp, 4}}},
                        {"n", columns, {{Level::Lane, 8}, {Level::Vector, 4}}}});
  std::vector<Index> at{{b.coord(s, 0)}, {b.coord(s, 1)}};
  b.store(y, at, b.point(PointOp::Mul, {b.load(x, at, s), b.constant(Float, 2)}));
  return {b.take(), {13, 28}, {}};
}

struct Family {
  std::string name;
  Example example;
  std::string text;
  int64_t sharedBytes = -1;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from, text.find("//@ kernel"));
  EXPECT_NE(at, std::string::npos) << "nothing to plant at: " << from << "\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string between(const std::string& text, const std::string& start, const std::string& end) {
  size_t from = text.find(start, text.find("//@ kernel"));
  size_t to = text.find(end, from);
  EXPECT_TRUE(from != std::string::npos && to != std::string::npos) << "no " << start << "\n" << text;
  return from == std::string::npos || to == std::string::npos ? std::string()
                                                              : text.substr(from, to + end.size() - from);
}

std::vector<Family> families() {
  std::vector<Family> all;
  Example pointwise = narrowDouble();
  std::string text = emitCuda(pointwise.program).text;
  // Each thread passes a number to its neighbour through shared memory, and one through a shuffle; both come back.
  std::string exchange =
      "  sharedStore<float>(threadIndex()*4, 0.0f, 900);\n  barrier(901);\n"
      "  float extra = sharedLoad<float>((threadIndex() + 32) % 128 * 4, 902);\n"
      "  extra = extra + shuffleXor((float)threadIndex(), 1, 903) - (float)(threadIndex() ^ 1);\n";
  text = replaced(text, "  float x0[4];\n", exchange + "  float x0[4];\n");
  text = replaced(text, "] = x0[n_v] * 2.0f", "] = x0[n_v] * 2.0f + extra");
  all.push_back({"pointwise", pointwise, text, 512});
  for (auto& [name, example] :
       std::vector<std::pair<std::string, Example>>{{"row reduction", innerSumProgram(Target::Gpu, Float, 19, 1332)},
                                                    {"normalization", softmaxProgram(Target::Gpu, Float, 5, 1100)},
                                                    {"outer sum", outerSumProgram(Target::Gpu, Float, 200, 136)}}) {
    all.push_back({name, example, emitCuda(example.program).text});
  }
  return all;
}

// The last shuffle, up to its mask: a wrong maximum cancels in softmax, a wrong sum does not.
std::string lastShuffle(const std::string& text, const std::string& mask) {
  size_t from = text.rfind(mask);
  from = text.rfind("shuffleXor(", from);
  return text.substr(from, text.find(mask, from) + mask.size() - from);
}

// The condition under which one thread of several writes to shared memory.
std::string writerCondition(const std::string& text) {
  size_t store = text.find("sharedStore<", text.find("//@ kernel"));
  size_t from = text.rfind("if (", store);
  return text.substr(from, text.find(')', from) + 1 - from);
}

struct Fault {
  std::string name;
  std::string text;
};

std::vector<Fault> plant(const Family& f) {
  bool pointwise = f.name == "pointwise";
  std::string barrier = between(f.text, "barrier(", ");");
  std::string store = between(f.text, "sharedStore<float>(", ",");
  std::string vector = between(f.text, "loadVector<", ", p");
  std::string shuffle = lastShuffle(f.text, pointwise ? " 1," : "mask,");
  std::string wrong = pointwise ? replaced("//@ kernel" + shuffle, " 1,", " 2,").substr(10)
                                : replaced("//@ kernel" + shuffle, "mask,", "1,").substr(10);
  std::string replica = pointwise ? "if (lane < 8 && " : writerCondition(f.text);
  return {{"missing barrier", replaced(f.text, barrier, "")},
          {"divergent barrier", replaced(f.text, barrier, "if (threadIndex() < 32) " + barrier)},
          {"shared overrun", replaced(f.text, store, store.substr(0, store.size() - 1) + " + 4096,")},
          {"misaligned vector", replaced(f.text, vector, vector + " + 1")},
          {"wrong shuffle", replaced(f.text, shuffle, wrong)},
          {"missing replica predicate", replaced(f.text, replica, pointwise ? "if (" : "if (true)")}};
}

TEST(PlantedFault, IsNoticedAndNamed) {
  std::vector<Comparison> cases;
  std::vector<std::string> names;
  for (const Family& f : families()) {
    cases.push_back({.example = f.example, .steps = 4000, .text = f.text, .sharedBytes = f.sharedBytes});
    names.push_back("");
    for (const Fault& fault : plant(f)) {
      cases.push_back({.example = f.example, .steps = 4000, .text = fault.text, .sharedBytes = f.sharedBytes});
      names.push_back(f.name + ", " + fault.name);
    }
  }
  // What the emulator must say of each kind; a wrong shuffle shows in the numbers alone.
  const std::vector<std::string> messages = {"race", "divergent", "overrun", "misaligned", "element", "write"};
  std::vector<Verdict> verdicts = compare(cases);
  for (size_t i = 0; i < cases.size(); i++) {
    if (names[i].empty()) {
      EXPECT_TRUE(verdicts[i].right()) << cases[i].example.program.name
                                       << " without a fault: " << verdicts[i].describe();
      continue;
    }
    const std::string& message = messages[i % (messages.size() + 1) - 1];
    EXPECT_NE(verdicts[i].describe().find(message), std::string::npos)
        << names[i] << ": " << verdicts[i].describe() << "\n"
        << kernelText(cases[i].text);
  }
}

// Y[m] = sum of X[m, n] over n, by four blocks of a cluster.
Example clusterSum() {
  Builder b("cluster_sum", Target::Gpu);
  IntExpr rows = b.size("M", {.lower = 1});
  IntExpr columns = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {rows, columns}, {columns, 1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {rows}, {1}, 4, false});
  b.gridDim("pm", rows);
  int s = b.space("s", {{"m", rows, {{Level::Part, 0, "pm"}}},
                        {"n", columns, {{Level::Cluster, 4}, {Level::Warp, 2}, {Level::Lane, 32}}}});
  ValueId v = b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s);
  b.store(y, {{b.coord(s, 0)}}, b.reduceAxis(v, 1, Combiner::Sum));
  return {b.take(), {3, 250}, {}};
}

TEST(PlantedFault, OfClustersAndLastArrivers) {
  Example cluster = clusterSum();
  std::string c = emitCuda(cluster.program).text;
  Example outer = outerSumProgram(Target::Gpu, Float, 300, 136);
  std::string o = emitCuda(outer.program).text;
  std::string firstBarrier = between(c, "clusterBarrier(", ");");
  std::string lastBarrier = c.substr(c.rfind("clusterBarrier("));
  struct Planted {
    Example example;
    std::string text;
    std::string message;
  };
  std::vector<Planted> planted = {
      {cluster, c, ""},
      {cluster, replaced(c, firstBarrier, ""), "remote"},
      {cluster, replaced(c, lastBarrier, "}\n"), "leave"},
      {cluster, replaced(c, firstBarrier, "if (rank < 2) " + firstBarrier), "divergent"},
      {cluster, replaced(c, "if (n_l == 0)", "if (true)"), "race"},
      {outer, o, ""},
      {outer, replaced(o, "fence();", ""), "without a fence"},
      {outer, replaced(o, "kShared", "kReadOnly"), "read-only path"},
      {outer, replaced(o, "== ceilDiv(M, 64) - 1", "== 0"), "element"},
  };
  std::vector<Comparison> cases;
  for (const Planted& p : planted) {
    cases.push_back({.example = p.example, .steps = 4000, .text = p.text});
  }
  std::vector<Verdict> verdicts = compare(cases);
  for (size_t i = 0; i < verdicts.size(); i++) {
    EXPECT_EQ(verdicts[i].right(), planted[i].message.empty()) << i << ": " << verdicts[i].describe();
    EXPECT_NE(verdicts[i].describe().find(planted[i].message), std::string::npos)
        << i << ": " << verdicts[i].describe();
  }
}

}  // namespace
}  // namespace meshfuse::simt
