// How close do fused kernels come to the memory's speed?
//
// Two threads. Each round times in turn its ceiling and the fusion, twice each with the same threads, and takes the faster time of both.
// The ceiling is a copy of as many bytes, once with memcpy and once with streaming stores, or for sums a read. The figure is the median of
// the rounds' ratios. Each that is timed has tensors of its own, so that none finds in a large cache what another has just read.
//
// NAME/any_size: how fast are the kernels of any size against those of constant sizes? Both run in turn on the same tensors, in every other
// round in the other order.
#include <benchmark/benchmark.h>
#include <fmt/ranges.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>

#include "base/ranges.h"
#include "base/thread_pool.h"
#include "exec/fusion_executor_cache.h"
#include "figures.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kColumns = 4096;
constexpr int kRounds = 15;

struct Outputs : std::vector<TensorView*> {
  Outputs(TensorView* one) : Outputs({one}) {}
  Outputs(std::initializer_list<TensorView*> all) : std::vector<TensorView*>(all) {}
};

using Build = std::function<Outputs(const std::vector<TensorView*>&)>;

struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;
  Build build;
  std::optional<double> goal;
  bool readsOnly = false;
  double copies = 1;  // of the first tensor that cost as much traffic
  DataType type = DataType::Float;
  int64_t classes = 0;     // if not 0, the last tensor has numbers of classes
  bool anyColumns = true;  // false: only the number of rows can be a symbol
};

bool isOfClasses(const Case& c, int64_t input) { return c.classes > 0 && input + 1 == std::ssize(c.shapes); }

ThreadPool& pool() {
  static ThreadPool p({.threads = 2});
  return p;
}

constexpr int64_t kPiece = 1 << 18;

double memcpySeconds(const Tensor& from, const Tensor& to, int64_t bytes) {
  return secondsOf([&] {
    pool().run((bytes + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end, int) {
      int64_t last = std::min(bytes, end * kPiece);
      std::memcpy(to.data_as<char>() + begin * kPiece, from.data_as<char>() + begin * kPiece,
                  static_cast<size_t>(last - begin * kPiece));
    });
  });
}

__attribute__((target("avx2"))) void streamRange(const char* from, char* to, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
  _mm_sfence();
}

double streamSeconds(const Tensor& from, const Tensor& to, int64_t bytes) {
  return secondsOf([&] {
    pool().run((bytes + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end, int) {
      int64_t last = std::min(bytes, end * kPiece);
      streamRange(from.data_as<char>() + begin * kPiece, to.data_as<char>() + begin * kPiece, last - begin * kPiece);
    });
  });
}

__attribute__((target("avx2"))) float sumRange(const float* from, int64_t n) {
  __m256 a[8] = {};
  for (int64_t i = 0; i < n; i += 64) {
    for (int k = 0; k < 8; k++) {
      a[k] = _mm256_add_ps(a[k], _mm256_load_ps(from + i + 8 * k));
    }
    _mm_prefetch(reinterpret_cast<const char*>(from + i + 1024), _MM_HINT_T0);
  }
  float total = 0;
  for (__m256& v : a) {
    float parts[8];
    _mm256_storeu_ps(parts, v);
    for (float p : parts) {
      total += p;
    }
  }
  return total;
}

double readSeconds(const Tensor& from) {
  static volatile float sink = 0;
  return secondsOf([&] {
    pool().run(from.nbytes() / kPiece, [&](int64_t begin, int64_t end, int) {
      sink = sink + sumRange(from.data_as<float>() + begin * kPiece / 4, (end - begin) * kPiece / 4);
    });
  });
}

class Ceiling {
 public:
  explicit Ceiling(int64_t bytes)
      : elements_(bytes / kPiece * kPiece / 4), scale_(static_cast<double>(bytes) / (elements_ * 4)) {}
  double read() const { return scale_ * readSeconds(from_[0]); }
  double memcpy() const { return scale_ * memcpySeconds(from_[0], to_[0], to_[0].nbytes()); }
  double stream() const { return scale_ * streamSeconds(from_[1], to_[1], to_[1].nbytes()); }

 private:
  Tensor matrix() const { return randomTensor({elements_}, DataType::Float, 9); }

  int64_t elements_;  // in whole pieces
  double scale_;

  std::array<Tensor, 2> from_ = {matrix(), matrix()};
  std::array<Tensor, 2> to_ = {matrix(), matrix()};
};

// classes: of the numbers.
std::vector<Argument> inputsOf(const Case& c, const std::vector<std::vector<int64_t>>& shapes, int64_t classes) {
  std::vector<Argument> inputs;
  for (const int64_t i : indices(shapes)) {
    inputs.emplace_back(isOfClasses(c, i)
                            ? randomTensor(shapes[i], DataType::Int, i + 1, 0, static_cast<double>(classes - 1))
                            : randomTensor(shapes[i], c.type, i + 1));
  }
  return inputs;
}

std::unique_ptr<Fusion> fusionOf(const Case& c, const std::vector<std::vector<int64_t>>& shapes) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  std::vector<TensorView*> ins;
  for (const int64_t i : indices(shapes)) {
    ins.push_back(makeContigConcreteTensor(shapes[i], isOfClasses(c, i) ? DataType::Int : c.type));
    fusion->addInput(ins.back());
  }
  for (TensorView* out : c.build(ins)) {
    fusion->addOutput(out);
  }
  return fusion;
}

double secondsOfCall(FusionExecutorCache& cache, const std::vector<Argument>& inputs, std::vector<Tensor>& out) {
  return secondsOf([&] { cache.run(std::span<const Argument>(inputs), out); });
}

void run(benchmark::State& state, const Case& c) {
  const std::vector<Argument> inputs = inputsOf(c, c.shapes, c.classes);
  FusionExecutorCache cache(fusionOf(c, c.shapes), {.threads = 2});
  std::vector<Tensor> out = cache.runFusionWithInputs(inputs);
  const Ceiling ceiling(std::get<Tensor>(inputs[0]).nbytes());
  for (auto _ : state) {
    std::vector<double> ratios;
    double total = 0;
    for (int round = 0; round < kRounds; round++) {
      double roof = c.readsOnly ? ceiling.read() : ceiling.memcpy() * c.copies;
      double ours = secondsOfCall(cache, inputs, out);
      roof = std::min(roof, c.readsOnly ? ceiling.read() : ceiling.stream() * c.copies);
      ours = std::min(ours, secondsOfCall(cache, inputs, out));
      ratios.push_back(roof / ours);
      total += ours;
    }
    state.SetIterationTime(total / kRounds);
    state.counters["of roof"] = median(ratios);
    record({"fusion " + c.name, median(ratios), c.readsOnly ? "of read roof" : "of copy", c.goal, "higher"});
  }
}

// The shapes with another number in place of each size that may be a symbol.
std::vector<std::vector<int64_t>> withSizes(const Case& c, const std::function<int64_t(int64_t size)>& other) {
  return mapped(c.shapes, [&](const auto& shape) {
    return mapped(shape,
                  [&](int64_t size) { return size == 1 || (size == kColumns && !c.anyColumns) ? size : other(size); });
  });
}

// A size is a symbol of a program from its second value on.
void anySize(benchmark::State& state, const Case& c) {
  static std::map<std::string, double> speeds;
  const std::vector<Argument> inputs = inputsOf(c, c.shapes, c.classes);
  FusionExecutorCache constant(fusionOf(c, c.shapes), {.threads = 2});
  FusionExecutorCache ofAnySize(fusionOf(c, withSizes(c, [](int64_t) { return -1; })), {.threads = 2});
  (void)ofAnySize.runFusionWithInputs(inputsOf(c, withSizes(c, [](int64_t size) { return size / 2; }), c.classes / 2));
  std::vector<Tensor> out = ofAnySize.runFusionWithInputs(inputs);
  (void)constant.runFusionWithInputs(inputs);
  for (auto _ : state) {
    std::vector<double> ratios;
    double total = 0;
    for (int round = 0; round < 2 * kRounds; round++) {
      const bool isFirst = round % 2 == 0;
      const double first = secondsOfCall(isFirst ? ofAnySize : constant, inputs, out);
      const double second = secondsOfCall(isFirst ? constant : ofAnySize, inputs, out);
      ratios.push_back(isFirst ? second / first : first / second);
      total += isFirst ? first : second;
    }
    state.SetIterationTime(total / (2 * kRounds));
    state.counters["of constant"] = median(ratios);
    speeds[c.name] = median(ratios);
  }
  const auto worst = std::ranges::min_element(speeds, {}, &std::pair<const std::string, double>::second);
  std::vector<double> all;
  std::ranges::copy(std::views::values(speeds), std::back_inserter(all));
  state.SetLabel(fmt::format("{}", fmt::join(ofAnySize.explain().sizes, "; ")));
  record({"fusions, kernels of any size against constant ones, median of all", median(all), "", 1, "higher"});
  record({"fusions, kernels of any size against constant ones, the slowest", worst->second, "", 0.97, "higher"});
}

// The rows and columns of a matrix, or the last dims of more, change places.
std::vector<Case> transposes() {
  const auto turned = [](const auto& t) { return permute(t[0], {1, 0}); };
  const auto named = [&](const char* name, std::vector<int64_t> shape, DataType type = DataType::Float) {
    return Case{name, {std::move(shape)}, turned, 0.80, false, 1, type};
  };
  return {
      named("transpose", {8192, 4096}),
      named("transpose_square", {4096, 4096}),
      named("transpose_small", {1024, 1024}),
      named("transpose_odd", {8191, 4095}),
      named("transpose_unaligned", {8200, 4104}),
      named("transpose_bfloat16", {8192, 4096}, DataType::BFloat16),
      {"permute_201",
       {{64, 512, 1024}},
       [](const auto& t) {
         return permute(t[0], {2, 0, 1});
       },
       0.80},
      {"permute_0213",
       {{8, 1024, 16, 64}},
       [](const auto& t) {
         return permute(t[0], {0, 2, 1, 3});
       },
       0.80},
      {"permute_0231",
       {{8, 16, 1024, 64}},
       [](const auto& t) {
         return permute(t[0], {0, 1, 3, 2});
       },
       0.80},
      {"channels_last",
       {{32, 64, 56, 56}},
       [](const auto& t) {
         return permute(t[0], {0, 2, 3, 1});
       },
       0.80},
      {"channels_first",
       {{32, 56, 56, 64}},
       [](const auto& t) {
         return permute(t[0], {0, 3, 1, 2});
       },
       0.80},
      {"add_transposed",
       {{4096, 4096}, {4096, 4096}},
       [](const auto& t) {
         return add(t[0], permute(t[1], {1, 0}));
       },
       0.80,
       false,
       1.5},
      {"bias_relu_transposed",
       {{8192, 4096}, {4096}},
       [](const auto& t) {
         return permute(relu(add(t[0], t[1])), {1, 0});
       },
       0.80},
  };
}

Outputs layerNormBackward(const std::vector<TensorView*>& t) {
  const BackwardNormResult g = layer_norm_backward(t[0], t[1], std::vector<int64_t>{kColumns}, t[2], t[3], t[4], t[4]);
  return {g.grad_input, g.grad_weight, g.grad_bias};
}

Outputs softmax16(TensorView* x) { return castOp(DataType::BFloat16, softmax(x, 1)); }

// Twelve ops that a processor computes in about as many instructions.
Outputs chainOf12(const std::vector<TensorView*>& t) {
  TensorView* x = t[0];
  for (int i = 0; i < 3; i++) {
    x = abs(sub(mul(relu(x), 1.5), 0.25));
  }
  return x;
}

std::vector<Case> cases() {
  std::vector<int64_t> matrix = {kRows, kColumns};
  std::vector<int64_t> row = {kColumns};
  return {
      // reads two matrices, writes one: one and a half copies
      {"add", {matrix, matrix}, [](const auto& t) { return add(t[0], t[1]); }, 0.95, false, 1.5},
      {"bias_gelu", {matrix, row}, [](const auto& t) { return tanh_gelu(add(t[0], t[1])); }, 0.80},
      {"layer_norm",
       {matrix, row, row},
       [](const auto& t) { return layer_norm(t[0], 1, t[1], t[2], 1e-5).output; },
       0.80},
      {"softmax", {matrix}, [](const auto& t) { return softmax(t[0], 1); }, 0.80},
      {"inner_sum", {matrix}, [](const auto& t) { return sum(t[0], {1}); }, 0.85, true},
      {"inner_scan", {matrix}, [](const auto& t) { return cumsum(t[0], 1); }, 0.50},
      {"outer_scan", {matrix}, [](const auto& t) { return cumsum(t[0], 0); }, 0.50},
      // A sort's work for each element grows with the row, so a copy is no ceiling for it: its goal is that of benchmarks/peers.
      {"sort", {{1024, kColumns}}, [](const auto& t) { return argsort(t[0], 1); }, std::nullopt},
      {"top_k", {matrix}, [](const auto& t) { return topk(t[0], 32, 1).indices; }, 0.50},
      {"outer_sum", {matrix}, [](const auto& t) { return sum(t[0], {0}); }, 0.85, true},
      {"sum_of_few_rows", {{4, kRows * kColumns / 4}}, [](const auto& t) { return sum(t[0], {1}); }, 0.85, true},
      {"variance", {matrix}, [](const auto& t) { return variance(t[0], {1}); }, 0.85, true},
      {"argmax", {matrix}, [](const auto& t) { return argmax(t[0], 1); }, 0.85, true},
      {"cross_entropy",
       {matrix, {kRows}},
       [](const auto& t) { return cross_entropy(t[0], t[1]); },
       0.70,
       true,
       1,
       DataType::Float,
       kColumns},
      {"softmax_long", {{kRows / 32, kColumns * 32}}, [](const auto& t) { return softmax(t[0], 1); }, 0.70},
      {"softmax_of_few_rows", {{4, kRows * kColumns / 4}}, [](const auto& t) { return softmax(t[0], 1); }, 0.50},
      {"softmax_bfloat16", {matrix}, [](const auto& t) { return softmax16(t[0]); }, 0.60, false, 1, DataType::BFloat16},
      {"layer_norm_backward",
       {matrix, matrix, {kRows, 1}, {kRows, 1}, row},
       layerNormBackward,
       0.70,
       false,
       1.5,
       DataType::Float,
       0,
       false},
      {"bias_gelu_bfloat16",
       {matrix, row},
       [](const auto& t) { return castOp(DataType::BFloat16, tanh_gelu(add(t[0], t[1]))); },
       0.60,
       false,
       1,
       DataType::BFloat16},
      {"chain_of_12", {matrix}, chainOf12, 0.85},
      {"sin", {matrix}, [](const auto& t) { return sin(t[0]); }, 0.80},
      {"cos", {matrix}, [](const auto& t) { return cos(t[0]); }, 0.80},
  };
}

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  using namespace meshfuse;
  static std::vector<Case> all = cases();
  for (Case& c : transposes()) {
    all.push_back(std::move(c));
  }
  for (Case& c : all) {
    benchmark::RegisterBenchmark(c.name.c_str(), [&c](benchmark::State& s) { run(s, c); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (Case& c : all) {
    benchmark::RegisterBenchmark((c.name + "/any_size").c_str(), [&c](benchmark::State& s) { anySize(s, c); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  return runBenchmarks(argc, argv);
}
