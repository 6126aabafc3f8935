// Random programs on two ranks with a GPU each: right results in every order that the streams of a simulated GPU allow.
//
//   tools/dev fuzz_gpus 300 5     300 programs in 5 orders each
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "fuzz/checks.h"
#include "fuzz/minimize.h"
#include "fuzz/program.h"
#include "ir/op_rule.h"

namespace meshfuse::fuzz {

namespace {

constexpr int kRanks = 2;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The op of a program that has no kernel on GPUs, by its name; empty if there is none.
std::string refusedOp(const Program& program) {
  for (const Expr* e : program.fusion->exprs()) {
    using enum ExprKind;
    if (e->kind() == Scan || e->kind() == ArgSort || e->kind() == Scatter || e->kind() == IndexPutAccumulate) {
      return std::string(ruleOf(*e).name);
    }
  }
  return "";
}

// What is wrong with a program in one of the orders; nothing if it is right in all.
std::optional<Failure> failureOf(const Program& program, uint64_t orders) {
  const char* const device = std::getenv("MESHFUSE_TEST_DEVICE");
  for (uint64_t order = 1; order <= orders; order++) {
    setenv("SIMGPU_SEED", std::to_string(1000 * program.seed + order).c_str(), 1);  // read by the engine of the child
    if (std::optional<Failure> f = checkOnDevicesInChild(program, device)) {
      f->message += fmt::format("\nSIMGPU_SEED={}", std::getenv("SIMGPU_SEED"));
      return f;
    }
  }
  return std::nullopt;
}

TEST(FuzzOnGpus, ResultsDoNotDependOnTheOrderOfStreams) {
  if (std::getenv("MESHFUSE_TEST_DEVICE") == nullptr) {
    GTEST_SKIP() << "needs a GPU or a simulated one: set MESHFUSE_TEST_DEVICE=cuda";
  }
  setenv("MESHFUSE_CACHE_DIR", "off", 1);
  const uint64_t wanted = setting("MESHFUSE_FUZZ_PROGRAMS", 30);
  const uint64_t orders = setting("MESHFUSE_FUZZ_ORDERS", 5);
  uint64_t programs = 0;
  uint64_t refused = 0;
  int failures = 0;
  for (uint64_t seed = setting("MESHFUSE_FUZZ_FIRST", 1); programs < wanted && failures < 5; seed++) {
    const Program program = randomProgram(seed);
    if (program.ranks != kRanks) {
      continue;
    }
    programs++;
    const std::string without = refusedOp(program);
    std::optional<Failure> failure = failureOf(program, without.empty() ? orders : 1);
    if (!without.empty()) {
      refused++;
      EXPECT_TRUE(failure && failure->message.find(" has no kernel on a GPU") != std::string::npos)
          << "seed " << seed << ": " << without << " was not refused: " << (failure ? failure->message : "");
      continue;
    }
    if (failure) {
      failures++;
      const Program small = minimize(program, [&](const Program& p) {
        const std::optional<Failure> f =
            p.ranks == kRanks && refusedOp(p).empty() ? failureOf(p, orders) : std::nullopt;
        return f && f->stage == failure->stage && f->message.substr(0, 12) == failure->message.substr(0, 12);
      });
      ADD_FAILURE() << "seed " << seed << ", mesh " << program.mesh << ", " << failure->stage << ": "
                    << failure->message.substr(0, 3000) << "\nsmaller:\n"
                    << small.fusion->toString();
    }
  }
  fmt::print("{} programs in {} orders each; {} of them have an op without a kernel on GPUs, and were refused\n",
             programs, orders, refused);
  EXPECT_LE(3 * refused, programs) << "too few programs run";
}

}  // namespace

}  // namespace meshfuse::fuzz
