#include "simt/compare.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "tile/call.h"
#include "tile/interpreter.h"

namespace meshfuse::simt {

namespace {

std::string firstMismatch(const Comparison& c, const tile::Call& got, const tile::Call& expected) {
  const tile::Program& p = c.example.program;
  for (int t = 0; t < std::ssize(p.tensors); t++) {
    const tile::TensorParam& tensor = p.tensors[t];
    if (tensor.memory != tile::Memory::Output && tensor.memory != tile::Memory::InOut) {
      continue;
    }
    std::vector<double> a = got.values(t);
    std::vector<double> b = expected.values(t);
    bool floating = isFloatingPoint(tensor.dtype);
    double bound =
        !floating ? 0
                  : std::ldexp(1.0, -info(tensor.dtype).mantissaBits + 1) * (isHalfPrecision(tensor.dtype) ? 1 : 0) +
                        c.steps * std::ldexp(1.0, tensor.dtype == DataType::Double ? -53 : -24);
    for (size_t i = 0; i < a.size(); i++) {
      bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                  std::abs(a[i] - b[i]) <= bound * std::max(1.0, std::abs(b[i]));
      if (!same) {
        return fmt::format("{}: element {} is {}, expected {} (off by {}, allowed {})", tensor.name, i, a[i], b[i],
                           std::abs(a[i] - b[i]), bound * std::max(1.0, std::abs(b[i])));
      }
    }
  }
  return {};
}

}  // namespace

std::string Comparison::describe() const {
  std::string text = example.program.name;
  for (int64_t s : example.sizes) {
    text += fmt::format(" {}", s);
  }
  return text;
}

std::string Verdict::describe() const {
  std::string text = mismatch;
  for (const std::string& f : result.faults) {
    text += (text.empty() ? "" : "\n") + f;
  }
  return text;
}

std::vector<Verdict> compare(std::span<const Comparison> cases, const Runner& runner) {
  std::vector<std::unique_ptr<tile::Call>> calls;
  std::vector<Launch> launches;
  for (const Comparison& c : cases) {
    calls.push_back(std::make_unique<tile::Call>(c.example));
    Kernel kernel = kernelOf(c.example.program);
    if (!c.text.empty()) {
      kernel.source.text = c.text;
    }
    if (c.sharedBytes >= 0) {
      kernel.source.sharedBytes = c.sharedBytes;
    }
    launches.push_back({std::move(kernel), calls.back()->slots(), c.seed, c.countSectors});
  }
  std::vector<Result> results = runner ? runner(launches) : run(launches);
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i < cases.size(); i++) {
    tile::Call expected(cases[i].example);
    tile::interpret(cases[i].example.program, expected.slots());
    verdicts.push_back({std::move(results[i]), firstMismatch(cases[i], *calls[i], expected)});
  }
  return verdicts;
}

}  // namespace meshfuse::simt
