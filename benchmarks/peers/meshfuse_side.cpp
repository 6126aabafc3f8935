// meshfuse as one of the sides that run.py compares: reads requests, lines of JSON, and answers each with a line.
#include <fmt/core.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../figures.h"
#include "base/error.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

using Json = nlohmann::json;
using Tensors = std::vector<TensorView*>;

// The operands of a step: its tensors, and the numbers that follow them
struct Operands {
  Tensors t;
  std::vector<int64_t> n;  // a list as its elements
};

const std::map<std::string, std::function<Tensors(const Operands&)>>& operations() {
  static const std::map<std::string, std::function<Tensors(const Operands&)>> table = {
      {"add", [](const Operands& o) { return Tensors{add(o.t[0], o.t[1])}; }},
      {"sub", [](const Operands& o) { return Tensors{sub(o.t[0], o.t[1])}; }},
      {"mul", [](const Operands& o) { return Tensors{mul(o.t[0], o.t[1])}; }},
      {"exp", [](const Operands& o) { return Tensors{exp(o.t[0])}; }},
      {"tanh", [](const Operands& o) { return Tensors{tanh(o.t[0])}; }},
      {"sin", [](const Operands& o) { return Tensors{sin(o.t[0])}; }},
      {"cos", [](const Operands& o) { return Tensors{cos(o.t[0])}; }},
      {"relu", [](const Operands& o) { return Tensors{relu(o.t[0])}; }},
      {"gelu", [](const Operands& o) { return Tensors{tanh_gelu(o.t[0])}; }},
      {"softmax", [](const Operands& o) { return Tensors{softmax(o.t[0], o.n[0])}; }},
      {"sum", [](const Operands& o) { return Tensors{sum(o.t[0], {o.n[0]})}; }},
      {"variance", [](const Operands& o) { return Tensors{variance(o.t[0], {o.n[0]})}; }},
      {"argmax", [](const Operands& o) { return Tensors{argmax(o.t[0], o.n[0])}; }},
      {"cumsum", [](const Operands& o) { return Tensors{cumsum(o.t[0], o.n[0])}; }},
      {"sort", [](const Operands& o) { return Tensors{sort(o.t[0], o.n[0]).values}; }},
      {"topk",
       [](const Operands& o) {
         const TopKResult r = topk(o.t[0], o.n[0]);
         return Tensors{r.values, r.indices};
       }},
      {"permute", [](const Operands& o) { return Tensors{permute(o.t[0], o.n)}; }},
      {"reshape", [](const Operands& o) { return Tensors{reshape(o.t[0], o.n)}; }},
      {"matmul", [](const Operands& o) { return Tensors{matmul(o.t[0], o.t[1])}; }},
      {"linear", [](const Operands& o) { return Tensors{linear(o.t[0], o.t[1], o.t[2])}; }},
      {"attention", [](const Operands& o) { return Tensors{sdpfa_fwd(o.t[0], o.t[1], o.t[2]).output}; }},
      {"causal_attention",
       [](const Operands& o) { return Tensors{sdpfa_fwd(o.t[0], o.t[1], o.t[2], 0.0, true).output}; }},
      {"layer_norm", [](const Operands& o) { return Tensors{layer_norm(o.t[0], 1, o.t[1], o.t[2], 1e-5).output}; }},
      {"rms_norm", [](const Operands& o) { return Tensors{rms_norm(o.t[0], 1, o.t[1], 1e-5).output}; }},
      {"layer_norm_backward",
       [](const Operands& o) {
         const std::vector<int64_t> shape = {o.t[1]->shape().back().constValue()};
         const BackwardNormResult r = layer_norm_backward(o.t[0], o.t[1], shape, o.t[2], o.t[3], o.t[4], o.t[4]);
         return Tensors{r.grad_input, r.grad_weight, r.grad_bias};
       }},
      {"cross_entropy", [](const Operands& o) { return Tensors{cross_entropy(o.t[0], o.t[1])}; }},
      {"embedding", [](const Operands& o) { return Tensors{embedding_fwd(o.t[0], o.t[1])}; }},
  };
  return table;
}

DataType typeNamed(const std::string& name) {
  static const std::map<std::string, DataType> types = {
      {"float", DataType::Float}, {"double", DataType::Double}, {"bf16", DataType::BFloat16}, {"int", DataType::Int}};
  return types.at(name);
}

class Workload {
 public:
  explicit Workload(const Json& request) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    std::map<std::string, Tensors> values;
    for (const Json& input : request["inputs"]) {
      const std::vector<int64_t> extents = input["extents"];
      const DataType type = typeNamed(input["type"]);
      TensorView* tv = makeContigConcreteTensor(extents, type);
      fusion->addInput(tv);
      values[input["name"]] = {tv};
      Tensor tensor = Tensor::empty(extents, type);
      std::ifstream(input["file"].get<std::string>()).read(tensor.data_as<char>(), tensor.nbytes());
      inputs_.emplace_back(tensor);
    }
    for (const Json& step : request["steps"]) {
      Operands operands;
      for (const Json& operand : step[2]) {
        if (operand.is_string()) {
          operands.t.push_back(values.at(operand)[0]);
        } else {
          const std::vector<int64_t> numbers = operand.is_array() ? operand : Json::array({operand});
          operands.n.insert(operands.n.end(), numbers.begin(), numbers.end());
        }
      }
      Tensors& results = values[step[0]] = operations().at(step[1])(operands);
      for (TensorView*& tv : results) {  // of 16-bit tensors they are Float, on the other sides of the same type
        if (isHalfPrecision(operands.t[0]->dtype()) && isFloatingPoint(tv->dtype())) {
          tv = maybeCastOp(operands.t[0]->dtype(), tv);
        }
      }
    }
    for (TensorView* tv : values.at(request["result"])) {
      fusion->addOutput(tv);
    }
    cache_ = std::make_unique<FusionExecutorCache>(std::move(fusion), ExecutorOptions{.threads = 2});
    results_ = cache_->runFusionWithInputs(inputs_);
  }

  void call() { cache_->run(std::span<const Argument>(inputs_), results_); }
  const std::vector<Tensor>& results() const { return results_; }

 private:
  std::vector<Argument> inputs_;
  std::unique_ptr<FusionExecutorCache> cache_;
  std::vector<Tensor> results_;
};

void writeDoubles(const Tensor& tensor, const std::string& file) {
  const std::vector<double> values = tensor.toVector();
  std::ofstream(file).write(reinterpret_cast<const char*>(values.data()), std::ssize(values) * 8);
}

// The median of calls that take `budget` seconds together, after one that is not timed
double secondsOfCall(Workload& workload, double budget) {
  workload.call();
  std::vector<double> seconds;
  for (double total = 0; seconds.empty() || total < budget; total += seconds.back()) {
    seconds.push_back(secondsOf([&] { workload.call(); }));
  }
  return median(seconds);
}

void serve() {
  std::unique_ptr<Workload> workload;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    Json answer;
    if (request["do"] == "prepare") {
      workload.reset();
      workload = std::make_unique<Workload>(request);
      for (const Tensor& result : workload->results()) {
        const std::string file = fmt::format("{}.{}", request["out"].get<std::string>(), answer["meshfuse"].size());
        writeDoubles(result, file);
        answer["meshfuse"].push_back(file);
      }
    } else {
      answer = secondsOfCall(*workload, request["seconds"]);
    }
    std::cout << answer.dump() << std::endl;
  }
}

}  // namespace
}  // namespace meshfuse

int main() { meshfuse::serve(); }
