// Six kinds of fault planted into the texts of kernels that the schedulers made, one or two of each family: the emulator
// must notice each of them. Where a text lacks what a fault needs, the test says so and checks that it does.
#include <gtest/gtest.h>

#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

using Tensors = std::vector<TensorView*>;

struct FaultFamily {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;
  ScheduledBatch::Build build;
  std::string replica;  // the condition that lets one thread of several write; in place of that of shared memory
};

std::vector<FaultFamily> families() {
  return {
      {"pointwise", {{12}}, [](const Tensors& t) { return neg(t[0]); }, "lane < 4"},
      {"pointwise with a broadcast", {{12}, {1}}, [](const Tensors& t) { return add(t[0], t[1]); }, "lane < 4"},
      {"sum of rows", {{19, 1332}}, [](const Tensors& t) { return sum(t[0], {1}); }, ""},
      {"sum of columns", {{200, 136}}, [](const Tensors& t) { return sum(t[0], {0}); }, ""},
      {"softmax", {{5, 1100}}, [](const Tensors& t) { return softmax(t[0], 1); }, ""},
      {"layer_norm",
       {{5, 1100}, {1100}, {1100}},
       [](const Tensors& t) { return layer_norm(t[0], std::vector<int64_t>{1100}, t[1], t[2], 1e-5).output; },
       ""},
      {"transpose",
       {{64, 96}},
       [](const Tensors& t) {
         return permute(t[0], {1, 0});
       },
       "every thread writes"},
  };
}

// `text` with the first, or last, `from` of its kernel replaced; empty if there is none.
std::string replaced(const std::string& text, const std::string& from, const std::string& to, bool last = false) {
  size_t kernel = text.find("//@ kernel");
  size_t at = last ? text.rfind(from) : text.find(from, kernel);
  return from.empty() || at == std::string::npos || at < kernel ? "" : std::string(text).replace(at, from.size(), to);
}

// From the first `start` of the kernel to the next `end`.
std::string between(const std::string& text, const std::string& start, const std::string& end) {
  size_t from = text.find(start, text.find("//@ kernel"));
  size_t to = from == std::string::npos ? from : text.find(end, from);
  return to == std::string::npos ? "" : text.substr(from, to + end.size() - from);
}

// The condition under which one thread of several writes to shared memory.
std::string writerCondition(const std::string& text) {
  size_t store = text.find("sharedStore<", text.find("//@ kernel"));
  size_t from = store == std::string::npos ? store : text.rfind("if (", store) + 4;
  return from == std::string::npos ? "" : text.substr(from, text.find(')', from) - from);
}

struct Fault {
  std::string name;
  std::string says;  // what the emulator calls it; empty: it shows in the numbers alone
  std::string text;  // empty: the kernel has nothing to plant it at
};

std::vector<Fault> plant(const std::string& text, const std::string& ownReplica) {
  std::string barrier = between(text, "barrier(", ");");
  std::string store = between(text, "sharedStore<float>(", ",");
  std::string vector = between(text, "loadVector<", ", p");
  std::string replica = ownReplica.empty() ? writerCondition(text) : ownReplica;
  return {{"missing barrier", "race", replaced(text, barrier, "")},
          {"divergent barrier", "divergent", replaced(text, barrier, "if (threadIndex() < 32) " + barrier)},
          {"shared overrun", "overrun", replaced(text, store, store.substr(0, store.size() - 1) + " + 8192,")},
          {"misaligned vector", "misaligned", replaced(text, vector, vector + " + 1")},
          // a wrong maximum cancels in softmax, the last one is a sum
          {"wrong shuffle", "", replaced(text, "mask, ", "1, ", true)},
          {"missing replica predicate", "write", replaced(text, "if (" + replica + ")", "if (true)")}};
}

// What pointwise kernels have nothing for: they exchange nothing between threads. Those of a transpose exchange through memory only.
bool isLacking(const FaultFamily& f, const Fault& fault) {
  if (f.name == "transpose") {
    return fault.name == "wrong shuffle" || fault.name == "missing replica predicate";
  }
  return f.name.starts_with("pointwise") && fault.name != "misaligned vector" &&
         fault.name != "missing replica predicate";
}

TEST(PlantedFaultOfScheduledKernels, IsNoticedAndNamed) {
  ScheduledBatch whole;
  for (const FaultFamily& f : families()) {
    whole.add(f.shapes, f.build);
  }
  std::vector<ScheduledVerdict> right = runScheduled(whole.cases);
  ScheduledBatch broken;
  std::vector<Fault> faults;
  for (size_t i = 0; i < right.size(); i++) {
    const FaultFamily family = families()[i];
    EXPECT_TRUE(right[i].right()) << family.name << " without a fault: " << right[i].describe();
    for (Fault fault : plant(right[i].source.text, family.replica)) {
      EXPECT_EQ(fault.text.empty(), isLacking(family, fault))
          << family.name << ", " << fault.name << ": " << right[i].describe();
      if (!fault.text.empty()) {
        fault.name = family.name + ", " + fault.name;
        broken.add(family.shapes, family.build);
        faults.push_back(std::move(fault));
      }
    }
  }
  std::vector<ScheduledVerdict> verdicts =
      runScheduled(broken.cases, DeviceInfo::hopper(), [&](std::span<const Launch> launches) {
        std::vector<Launch> planted(launches.begin(), launches.end());
        for (size_t i = 0; i < planted.size(); i++) {
          planted[i].kernel.source.text = faults[i].text;
        }
        return run(planted);
      });
  EXPECT_EQ(verdicts.size(), 2u * 2 + 4 * 6 + 4);
  for (size_t i = 0; i < verdicts.size(); i++) {
    std::string said;
    for (const std::string& f : verdicts[i].result.faults) {
      said += f + "\n";
    }
    if (faults[i].says.empty()) {
      EXPECT_NE(verdicts[i].difference, "") << faults[i].name;
    } else {
      EXPECT_NE(said.find(faults[i].says), std::string::npos) << faults[i].name << ": " << said << faults[i].text;
    }
  }
}

}  // namespace
}  // namespace meshfuse::simt
