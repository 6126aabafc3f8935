// Trains a byte-level language model on the sources of this repository, on as many ranks as the launcher starts.
//
//   train_lm --steps 200 --losses losses.csv
//   mpirun -np 4 train_lm --device cuda
//   mpirun -np 4 train_lm --auto
//
// The model is one fusion with annotated weights, or with --auto one that a plan annotates (train_lm_model.h); the loop below is that of a program with one rank.
#include <CLI/CLI.hpp>

#include <cmath>
#include <exception>

#include "multidevice/transport/host/world.h"
#include "planned.h"
#include "train_lm_model.h"
#include "train_lm_report.h"
#include "train_lm_text.h"

namespace {

using namespace train_lm;

struct Options {
  ModelSizes sizes;
  int64_t steps = 200;
  double rate = 0.25;  // from about 0.5 on the steps overshoot, and rounding differences grow tenfold every few steps
  int64_t sample = 200;
  std::string text = MESHFUSE_SOURCE_DIR "/csrc";
  std::string losses;
  std::string progress = "auto";
  std::string device = "cpu";
  bool isPlanned = false;
  std::optional<uint64_t> memory;
};

// The training step with the shardings of a plan, which rank 0 prints.
std::unique_ptr<Fusion> plannedStep(const Options& o, const DeviceId& device, Communicator& world) {
  return planned::byRankZero(world, [&] {
    const DistributedConfig machines = planned::machinesOf(world, device, o.memory);
    std::unique_ptr<Fusion> step = unshardedStep(o.sizes);
    const AutoPlan plan = autoParallelize(*step, machines);
    const AutoPlan byHand = autoParallelize(*trainingStep(o.sizes), machines, {.alternatives = false});
    fmt::print("\n{}with the weights sharded by hand a step takes {:.4g} ms\n\n", plan.text(), 1e3 * byHand.seconds);
    return step;
  });
}

// Bytes that the model finds likely after the start of the text, drawn at a low temperature.
std::string sampleText(const Options& o, const Fusion& step, const std::string& text,
                       const std::vector<Tensor>& parameters) {
  FusionExecutorCache cache(prediction(o.sizes, step));
  Tensor tokens = Tensor::empty({1, o.sizes.context}, DataType::Int);
  std::string sample = text.substr(0, o.sizes.context);
  for (int64_t i = 0; i < o.sample; i++) {
    setTokens(tokens.data_as<int64_t>(), sample, i, o.sizes.context);
    std::vector<Argument> inputs = {tokens.to(parameters[0].device())};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    std::vector<double> logits = cache.runFusionWithInputs(inputs)[0].toVector();
    double highest = *std::max_element(logits.begin(), logits.end()), total = 0;
    for (double& l : logits) {
      l = std::exp((l - highest) / 0.8);
      total += l;
    }
    double left = total * static_cast<double>(Batches::mix(static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
    size_t byte = 0;
    while (byte + 1 < logits.size() && (left -= logits[byte]) >= 0) {
      byte++;
    }
    sample += static_cast<char>(byte);
  }
  return sample;
}

void writeLosses(const std::string& path, const std::vector<double>& losses) {
  std::ofstream out(path);
  out << "step,loss\n";
  for (size_t i = 0; i < losses.size(); i++) {
    out << fmt::format("{},{:.9g}\n", i, losses[i]);
  }
  check(out.good(), "[train_lm] cannot write the losses to {}", path);
}

void train(const Options& o, Communicator& world) {
  bool prints = world.rank() == 0;
  Batches batches(readSources(o.text), o.sizes.batch, o.sizes.context);
  if (prints) {
    fmt::print("{} bytes of text, {} rank{}, transport {}\n", batches.text().size(), world.size(),
               world.size() == 1 ? "" : "s", world.transport());
  }
  const DeviceId device = localDevice(o.device, world);
  FusionExecutorCache cache(o.isPlanned ? plannedStep(o, device, world) : trainingStep(o.sizes));
  std::vector<Tensor> parameters;
  for (const Tensor& initial : initialParameters(o.sizes, cache.fusion(), world.rank())) {
    parameters.push_back(initial.to(device));
  }

  std::vector<double> losses;
  Progress progress(prints, o.progress == "auto" ? isatty(STDOUT_FILENO) == 1 : o.progress == "bar", o.steps,
                    o.sizes.batch);
  for (int64_t step = 0; step < o.steps; step++) {
    batches.draw(step);
    std::vector<Tensor> outputs =
        cache.runFusionWithInputs(arguments(cache.fusion(), world.rank(), batches, o.rate, parameters));
    losses.push_back(outputs[0].item());
    progress.show(step, losses.back());
  }

  // More steps that leave the parameters as they are, to look at
  std::vector<Argument> inputs = arguments(cache.fusion(), world.rank(), batches, 0.0, parameters);
  world.resetCounters();
  cache.runFusionWithInputs(inputs);
  Traffic bytes = traffic(cache.commSteps(), world.counters());
  const Profile profile = cache.profile(inputs, 10);
  std::string sample = sampleText(o, cache.fusion(), batches.text(), parameters);
  if (prints) {
    printCollectives(cache.commSteps(), bytes);
    fmt::print("\nkernels and collectives of a step, each the fastest of 10 runs\n{}", profile.text());
  }
  printShards(world, parameters[kW1], prints);
  if (prints) {
    fmt::print("\na sample after {} steps\n{}\n", o.steps, printable(sample));
    fmt::print("\nloss: {:.4f} -> {:.4f}, fallen by {:.2f} nats\n", losses.front(), losses.back(),
               losses.front() - losses.back());
  }
  if (prints && !o.losses.empty()) {
    writeLosses(o.losses, losses);
  }
  check(bytes.agree(), "[train_lm] rank {}: the transport did not count the bytes of the plan", world.rank());
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Trains a byte-level language model on the sources of this repository.");
  app.add_option("--steps", o.steps, "steps to train")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--batch", o.sizes.batch, "places in the text a step learns from")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--hidden", o.sizes.hidden, "hidden features, a multiple of the ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--lr", o.rate, "learning rate")->capture_default_str();
  app.add_option("--sample", o.sample, "bytes of text to make up at the end")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--text", o.text, "folder with the .h and .cpp files to learn")->take_last()->capture_default_str();
  app.add_option("--losses", o.losses, "file for the loss of every step");
  app.add_option("--device", o.device, "cpu, cuda (each rank takes a GPU of its host), or one GPU such as cuda:0")
      ->capture_default_str();
  CLI::Option* isPlanned = app.add_flag("--auto", o.isPlanned, "shard by a plan instead of by hand, and print it");
  app.add_option("--memory", o.memory, "memory of a rank for the plan, such as 16GB; default: 2GB, of a GPU 80GB")
      ->transform(CLI::AsSizeValue(true))
      ->needs(isPlanned);
  app.add_option("--progress", o.progress, "a bar, a line every 20 steps, or what fits the standard output")
      ->check(CLI::IsMember({"auto", "bar", "lines"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::unique_ptr<Communicator> world;
  try {
    world = openWorld();
    setDefaultWorld(world.get());
    o.sizes.ranks = world->size();
    train(o, *world);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_lm: {}\n", e.what());
    if (world != nullptr) {
      world->abort(e.what());
    }
    return 1;
  }
}
