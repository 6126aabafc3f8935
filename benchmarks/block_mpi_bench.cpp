// Does a transformer block with the plan that meshfuse makes run as fast as with the same plan written by hand?
//
//   mpirun -np 2 block_mpi_bench [--json FILE] [--quick] [--show]
//
// Forward, tensor parallel over all ranks. "default": only the input and the weights are placed. "sequence parallel" and "two all-reduces"
// are by hand: every tensor is placed, every redistribution is a set or the placement of a sum that is written out, and the pass that
// moves redistributions is off. What ranks exchange by default must be what they do in one of the two; the numbers are the same then,
// and the ratio to that one has the goal, as has the ratio to two all-reduces. Interleaved call by call, a call's time is that of its slowest rank; ratios are medians of the
// rounds'. --show prints the plans.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "figures.h"
#include "meshfuse/meshfuse.h"

namespace {

using namespace meshfuse;

constexpr double kGoal = 1.02;
constexpr double kTolerance = 1e-5;  // of results of magnitude 1, where sums are added in another order

struct Sizes {
  std::string name;
  int64_t batch, tokens, features, heads;
};

enum class Form { Default, SequenceParallel, TwoAllReduces };
constexpr int kForms = 3;

std::string_view name(Form form) {
  return form == Form::Default ? "default" : form == Form::SequenceParallel ? "sequence parallel" : "two all-reduces";
}

class Block {
 public:
  Block(Fusion& fusion, const DeviceMesh& mesh, const Sizes& sizes, Form form)
      : fusion_(fusion), mesh_(mesh), s_(sizes), form_(form) {}

  TensorView* build() {
    TensorView* x = input({s_.batch, s_.tokens, s_.features}, kWhole);
    const int between = form_ == Form::SequenceParallel ? kTokens : kWhole;
    TensorView* first = placed(attention(whole(norm(x, kWhole))), between);
    TensorView* middle = placed(add(part(x, between), first), between);
    TensorView* second = placed(feedForward(whole(norm(middle, between))), between);
    return whole(placed(add(middle, second), between));
  }

 private:
  static constexpr int kWhole = -1;
  static constexpr int kTokens = 1;

  // All tensors made since the last call, cut along dim `dim`; those that the default form leaves open stay so.
  TensorView* placed(TensorView* last, int dim) {
    if (form_ != Form::Default) {
      for (TensorView* tv : fusion_.tensors(ExprSet::All)) {
        if (!tv->hasDeviceMesh()) {
          cut(tv, dim);
        }
      }
    }
    return last;
  }
  void cut(TensorView* tv, int dim) const {
    tv->setDeviceMesh(mesh_);
    if (dim != kWhole && tv->shape()[dim].constValue() > 1) {
      tv->outer_split(dim, mesh_.size("tp"));
      tv->axis(dim)->parallelize(mesh_.axis("tp"));
    }
  }
  TensorView* part(TensorView* x, int dim) { return form_ == Form::SequenceParallel ? placed(set(x), dim) : x; }
  TensorView* whole(TensorView* x) { return part(x, kWhole); }

  TensorView* input(const std::vector<int64_t>& shape, int dim) {
    TensorView* tv = makeContigConcreteTensor(fusion_, shape, DataType::Float);
    fusion_.addInput(tv);
    cut(tv, dim);
    return tv;
  }

  TensorView* norm(TensorView* x, int dim) { return placed(layerNormOver(x, 1, nullptr, nullptr, 1e-5).output, dim); }

  TensorView* attention(TensorView* x) {
    const int64_t e = s_.features;
    auto heads = [&] {
      TensorView* w = input({e, e}, 0);
      TensorView* y = placed(reshape(linear(x, w), {s_.batch, s_.tokens, s_.heads, e / s_.heads}), 2);
      return placed(permute(y, {0, 2, 1, 3}), 1);
    };
    TensorView* q = heads();
    TensorView* k = heads();
    TensorView* v = heads();
    TensorView* mixed = placed(matmul(softmax(matmul(q, transpose(k, 2, 3)), -1), v), 1);
    mixed = placed(reshape(permute(mixed, {0, 2, 1, 3}), {s_.batch, s_.tokens, e}), 2);
    TensorView* w = input({e, e}, 1);
    return linear(mixed, w);
  }

  TensorView* feedForward(TensorView* x) {
    const int64_t e = s_.features;
    TensorView* up = input({4 * e, e}, 0);
    TensorView* hidden = placed(tanh_gelu(linear(x, up)), 2);
    TensorView* down = input({e, 4 * e}, 1);
    return linear(hidden, down);
  }

  Fusion& fusion_;
  const DeviceMesh& mesh_;
  const Sizes& s_;
  Form form_;
};

// A form of the block, ready to be called with the parts of this rank.
struct Program {
  std::unique_ptr<FusionExecutorCache> cache;
  std::vector<Argument> inputs;
  std::vector<Tensor> outputs;

  void run() { cache->run(inputs, outputs); }
};

// `inputs`: those of another form, whose memory is used again; empty: made here.
Program make(Communicator& world, const DeviceMesh& mesh, const Sizes& sizes, Form form, std::vector<Argument> inputs) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  fusion->addOutput(Block(*fusion, mesh, sizes, form).build());
  Program p;
  p.inputs = std::move(inputs);
  for (size_t k = p.inputs.size(); k < fusion->inputs().size(); k++) {
    const Val* in = fusion->inputs()[k];
    const std::vector<int64_t> shape = in->asTensor()->constantShape();
    const double range = 1 / std::sqrt(static_cast<double>(sizes.features));
    const Tensor global = randomTensor(shape, DataType::Float, k + 1, -range, range);
    p.inputs.emplace_back(shardTensor(global, in->asTensor(), world.rank()).clone());
  }
  const ExecutorOptions options{.communicator = &world, .passes = {.optimizeReshards = form == Form::Default}};
  p.cache = std::make_unique<FusionExecutorCache>(std::move(fusion), options);
  p.outputs = p.cache->runFusionWithInputs(p.inputs);
  return p;
}

[[noreturn]] void fail(const std::string& text) {
  fmt::print(stderr, "{}\n", text);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

std::vector<std::string> exchanges(const Program& program) {
  std::vector<std::string> out;
  for (const CommRecord& step : program.cache->commSteps()) {
    out.push_back(fmt::format("{} of {} bytes", step.kind, step.bytesReceived));
  }
  return out;
}

// The same numbers to `tolerance`, of magnitude 1 as they are.
void checkClose(const Program& a, const Program& b, double tolerance, std::string_view what) {
  const float* x = a.outputs[0].data_as<float>();
  const float* y = b.outputs[0].data_as<float>();
  for (int64_t i = 0; i < a.outputs[0].numel(); i++) {
    if (!(std::abs(x[i] - y[i]) <= tolerance)) {
      fail(fmt::format("{}: element {} is {} by the default plan, {} by the other", what, i, x[i], y[i]));
    }
  }
}

// Seconds of one call, of the slowest rank.
double timed(Program& program) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double own = secondsOf([&] { program.run(); });
  double slowest = own;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

struct Row {
  std::string name;
  double seconds[kForms];  // medians by form
  double ratios[kForms];   // of the default form's time over that of each
  int same;                // the form by hand that has the default plan
};

Row measure(Communicator& world, const Sizes& sizes, int rounds, bool show) {
  const DeviceMesh mesh = DeviceMesh::create({{"tp", world.size()}});
  std::vector<Program> forms;
  for (Form form : {Form::Default, Form::SequenceParallel, Form::TwoAllReduces}) {
    forms.push_back(make(world, mesh, sizes, form, forms.empty() ? std::vector<Argument>{} : forms[0].inputs));
    if (show && world.rank() == 0) {
      fmt::print("{}, {}: {}\n{}\n", sizes.name, name(form), fmt::join(exchanges(forms.back()), ", "),
                 forms.back().cache->planText());
    }
  }
  Row row{sizes.name, {}, {}, 0};
  for (int form = 1; form < kForms && row.same == 0; form++) {
    row.same = exchanges(forms[0]) == exchanges(forms[form]) ? form : 0;
  }
  if (row.same == 0) {
    fail(fmt::format("{}: ranks exchange [{}] by default, which is neither form by hand", sizes.name,
                     fmt::join(exchanges(forms[0]), ", ")));
  }
  for (int form = 1; form < kForms; form++) {
    checkClose(forms[0], forms[form], form == row.same ? 0 : kTolerance, sizes.name);
  }
  std::vector<double> times[kForms];
  std::vector<double> ratios[kForms];
  for (int round = -5; round < rounds; round++) {  // those below 0 warm up
    double t[kForms];
    for (int k = 0; k < kForms; k++) {
      const int form = round % 2 == 0 ? k : (kForms - k) % kForms;  // the order of those by hand alternates
      t[form] = timed(forms[form]);
    }
    for (int form = 0; form < kForms && round >= 0; form++) {
      times[form].push_back(t[form]);
      ratios[form].push_back(t[0] / t[form]);
    }
  }
  for (int form = 0; form < kForms; form++) {
    row.seconds[form] = median(times[form]), row.ratios[form] = median(ratios[form]);
  }
  return row;
}

void report(const std::vector<Row>& rows, int ranks, const std::string& json) {
  std::string text;
  auto add = [&](const std::string& name, double figure, const std::string& goal) {
    text += fmt::format(
        "{}  {{\"name\": \"{}\", \"figure\": {:.4f}, \"unit\": \"x of its time\", \"goal\": {}, "
        "\"better\": \"lower\"}}",
        text.empty() ? "" : ",\n", name, figure, goal);
  };
  fmt::print("{:<20} {:>10} {:>20} {:>18}\n", "us a block", "default", "sequence parallel", "two all-reduces");
  for (const Row& r : rows) {
    fmt::print("{:<20} {:>10.0f} {:>20.0f} {:>18.0f}\n", r.name, r.seconds[0] * 1e6, r.seconds[1] * 1e6,
               r.seconds[2] * 1e6);
    for (int form = 1; form < kForms; form++) {
      const bool same = form == r.same;
      const std::string_view other = name(static_cast<Form>(form));
      fmt::print("{:>20} {:.3f} of {}{}\n", "default takes", r.ratios[form], other,
                 same ? fmt::format(", the same plan by hand (goal {})", kGoal)
                 : form == static_cast<int>(Form::TwoAllReduces) ? fmt::format(" (goal {})", kGoal)
                                                                 : "");
      add(fmt::format("block/{}/{} ranks/{}{}", r.name, ranks, other, same ? ", the same plan by hand" : ""),
          r.ratios[form], same || form == static_cast<int>(Form::TwoAllReduces) ? fmt::format("{}", kGoal) : "null");
    }
  }
  if (!json.empty()) {
    std::FILE* file = std::fopen(json.c_str(), "w");
    if (file == nullptr) {
      fail("cannot write " + json);
    }
    fmt::print(file, "[\n{}\n]\n", text);
    std::fclose(file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::string json;
  int rounds = 200;
  bool show = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      rounds = 40;
    } else if (std::strcmp(argv[i], "--show") == 0) {
      show = true;
    }
  }
  {
    const std::unique_ptr<Communicator> world = openWorld();
    std::vector<Row> rows;
    for (const Sizes& sizes : {Sizes{"128 tokens of 256", 1, 128, 256, 8}, Sizes{"256 tokens of 256", 1, 256, 256, 8},
                               Sizes{"256 tokens of 384", 1, 256, 384, 12}, Sizes{"1 token of 384", 1, 1, 384, 12},
                               Sizes{"8 tokens of 384", 1, 8, 384, 12}, Sizes{"512 tokens of 384", 1, 512, 384, 12}}) {
      rows.push_back(measure(*world, sizes, rounds, show));
    }
    if (world->rank() == 0) {
      report(rows, world->size(), json);
    }
  }
  MPI_Finalize();
  return 0;
}
