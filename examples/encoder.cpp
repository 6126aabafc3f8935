// Embeds sentences, given as token ids, with a BERT encoder from a safetensors file, on as many ranks as the launcher starts.
//
//   encoder model.safetensors --tokens sentences.txt --save embeddings.npy
//   mpirun -np 4 encoder model.safetensors --mesh dp=2,tp=2 --device cuda
//   mpirun -np 4 encoder model.safetensors --auto
//
// Without --tokens it measures the throughput on random tokens. The model is in encoder_model.h, docs/encoder.md has more examples.
#include <CLI/CLI.hpp>

#include <chrono>
#include <exception>
#include <map>
#include <set>

#include "encoder_batches.h"
#include "encoder_model.h"
#include "planned.h"

namespace {

using namespace encoder;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string weights;
  std::string tokens;
  std::string save;
  std::string device = "cpu";
  std::vector<std::string> mesh;
  int64_t heads = 12;
  int64_t batch = 8;
  int64_t length = 128;
  int64_t repeat = 5;
  bool isPlanned = false;
  std::optional<uint64_t> memory;
};

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// dp=2,tp=2; an axis that is left out has size 1. Without axes, all ranks are on tp.
DeviceMesh meshOf(const std::vector<std::string>& axes, int64_t ranks) {
  std::map<std::string, int64_t> sizes = {{"dp", 1}, {"tp", axes.empty() ? ranks : 1}};
  std::set<std::string> given;
  for (const std::string& axis : axes) {
    const size_t equals = std::min(axis.find('='), axis.size() - 1);
    const auto size = sizes.find(axis.substr(0, equals));
    const std::optional<int64_t> number = numberOf(std::string_view(axis).substr(equals + 1), 1);
    check(size != sizes.end() && number && given.insert(size->first).second,
          "[encoder] --mesh has the axis \"{}\"; expected dp=N, tp=N, or both: --mesh dp=2,tp=2", axis);
    size->second = *number;
  }
  const DeviceMesh mesh = DeviceMesh::create({{"dp", sizes["dp"]}, {"tp", sizes["tp"]}});
  check(mesh.size() == ranks, "[encoder] --mesh has {} ranks, the launcher started {}; make both equal", mesh.size(),
        ranks);
  return mesh;
}

// The model with the shardings of a plan for batches of this shape, which rank 0 prints.
std::unique_ptr<Fusion> plannedModel(const Options& o, const SafetensorsFile& file, const std::vector<int64_t>& batch,
                                     const DeviceId& device, Communicator& world) {
  return planned::byRankZero(world, [&] {
    std::unique_ptr<Fusion> fusion = model(file, o.heads);
    const AutoPlan plan = shardByPlan(*fusion, batch, planned::machinesOf(world, device, o.memory));
    fmt::print("for batches of {} sentences of {} tokens: {}\n", batch[0], batch[1], plan.text());
    return fusion;
  });
}

void encode(const Options& o, Communicator& world) {
  const bool prints = world.rank() == 0;
  const SafetensorsFile file(o.weights);
  const ModelSizes sizes = sizesOf(file);
  const std::vector<Sentence> sentences =
      o.tokens.empty() ? randomSentences(o.batch, o.length, sizes) : readSentences(o.tokens, sizes);
  const DeviceMesh mesh = meshOf(o.mesh, world.size());
  const DeviceId device = localDevice(o.device, world);
  const Padding padding = o.isPlanned ? paddingFor(world.size()) : Padding{.sentences = ranksOf(mesh, "dp")};
  const std::vector<int64_t> largest =
      paddedShape(std::min(o.batch, std::ssize(sentences)), longestOf(sentences), padding, sizes.positions);
  FusionExecutorCache cache(o.isPlanned ? plannedModel(o, file, largest, device, world) : model(file, o.heads, mesh),
                            {.communicator = &world});

  const Clock::time_point beforeLoad = Clock::now();
  NamedArguments arguments = loadSharded(file, cache.fusion(), world.rank(), {"tokens"});
  int64_t held = 0;
  for (auto& [name, part] : arguments) {
    held += std::get<Tensor>(part).nbytes();
    part = std::get<Tensor>(part).to(device);
  }
  arguments.emplace_back("tokens", Tensor());
  if (prints) {
    fmt::print("{} rank{}, transport {}: rank 0 read {:.1f} MB of weights in {:.0f} ms\n", world.size(),
               world.size() == 1 ? "" : "s", world.transport(), static_cast<double>(held) * 1e-6,
               secondsSince(beforeLoad) * 1e3);
  }

  // The first pass compiles a plan for each shape.
  Tensor embeddings;
  int64_t tokens = 0;
  double seconds = 0;
  for (int64_t pass = 0; pass <= o.repeat; pass++) {
    const Clock::time_point start = Clock::now();
    tokens = 0;
    for (int64_t first = 0; first < std::ssize(sentences); first += o.batch) {
      const int64_t count = std::min(o.batch, std::ssize(sentences) - first);
      const std::span batch = std::span(sentences).subspan(first, count);
      const TensorView* input = cache.fusion().inputs()[0]->asTensor();
      const Tensor padded = paddedBatch(batch, padding, sizes.positions);
      arguments.back().second = shardTensor(padded, input, world.rank()).to(device);
      const Tensor result = cache.run(arguments)[0].to(DeviceId::cpu());
      tokens += padded.numel();
      if (!embeddings.defined()) {
        embeddings = Tensor::empty({std::ssize(sentences), result.size(1)}, DataType::Float);
      }
      std::copy_n(result.data_as<float>(), count * result.size(1),
                  embeddings.data_as<float>() + first * result.size(1));
    }
    if (pass == 0 && prints) {
      fmt::print("first pass, with {} compiled plans: {:.1f} ms\n", cache.plansCompiled(), secondsSince(start) * 1e3);
    } else if (pass == 1 || secondsSince(start) < seconds) {
      seconds = secondsSince(start);
    }
  }
  if (!prints) {
    return;
  }
  if (o.repeat > 0) {
    fmt::print("{} sentences, {} tokens with padding: {:.1f} ms, {:.0f} sentences/s, {:.0f} tokens/s\n",
               sentences.size(), tokens, seconds * 1e3, static_cast<double>(sentences.size()) / seconds,
               static_cast<double>(tokens) / seconds);
  }
  fmt::print("the first embedding begins with");
  for (int64_t i = 0; i < std::min<int64_t>(4, embeddings.size(1)); i++) {
    fmt::print(" {:.6f}", embeddings.at({0, i}));
  }
  fmt::print("\n");
  if (!o.save.empty()) {
    writeNpy(o.save, embeddings);
    fmt::print("wrote {}\n", o.save);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Embeds sentences with a BERT encoder from a safetensors file.");
  app.add_option("weights", o.weights, "safetensors file in the layout of BertModel")->required();
  app.add_option("--tokens", o.tokens, "file with a sentence a line, as token ids; default: random ones");
  app.add_option("--save", o.save, ".npy file for the embeddings");
  app.add_option("--mesh", o.mesh, "sentences are cut over dp, weights over tp; such as dp=2,tp=2")->delimiter(',');
  CLI::Option* isPlanned = app.add_flag("--auto", o.isPlanned, "shard by a plan, and print it")->excludes("--mesh");
  app.add_option("--memory", o.memory, "memory of a rank for the plan, such as 16GB; default: 2GB, of a GPU 80GB")
      ->transform(CLI::AsSizeValue(true))
      ->needs(isPlanned);
  app.add_option("--device", o.device, "cpu, cuda (each rank takes a GPU of its host), or one GPU such as cuda:0")
      ->capture_default_str();
  app.add_option("--heads", o.heads, "heads of the attention")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", o.batch, "sentences of a call")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--length", o.length, "random tokens of a sentence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--repeat", o.repeat, "timed passes over all sentences; the fastest is printed")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::unique_ptr<Communicator> world;
  try {
    world = openWorld();
    encode(o, *world);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "encoder: {}\n", e.what());
    if (world != nullptr) {
      world->abort(e.what());
    }
    return 1;
  }
}
