#include "device/cpu/orc/cpu_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/cores.h"
#include "base/error.h"
#include "base/ranges.h"
#include "device/cpu/orc/object_compiler.h"

namespace meshfuse {

using KernelPtr = std::shared_ptr<const CpuKernel>;

struct CpuCompiler::State {
  CpuCompilerOptions options;
  CpuTarget target;
  std::string keyPrefix;

  std::mutex mutex;                                  // of all below
  std::list<std::pair<Hash128, KernelPtr>> kernels;  // most recently used first
  std::map<Hash128, std::list<std::pair<Hash128, KernelPtr>>::iterator> byKey;
  std::vector<std::unique_ptr<ObjectCompiler>> idle;
  std::atomic<int64_t> compiles{0};
  std::atomic<int64_t> memoryHits{0};
  std::atomic<int64_t> diskHits{0};

  Hash128 keyOf(const tile::Program& program) const { return hashText(keyPrefix + tile::toString(program)); }

  KernelPtr find(Hash128 key) {
    std::lock_guard lock(mutex);
    auto found = byKey.find(key);
    if (found == byKey.end()) {
      return nullptr;
    }
    kernels.splice(kernels.begin(), kernels, found->second);
    return found->second->second;
  }

  // The kernel that stays: another thread may have been faster.
  KernelPtr keep(Hash128 key, KernelPtr kernel) {
    std::lock_guard lock(mutex);
    auto [place, isNew] = byKey.try_emplace(key);
    if (!isNew) {
      return place->second->second;
    }
    kernels.emplace_front(key, kernel);
    place->second = kernels.begin();
    while (kernels.size() > std::max<size_t>(options.kernels, 1)) {
      byKey.erase(kernels.back().first);
      kernels.pop_back();
    }
    return kernel;
  }

  std::unique_ptr<ObjectCompiler> borrow() {
    std::unique_lock lock(mutex);
    if (idle.empty()) {
      lock.unlock();
      return std::make_unique<ObjectCompiler>(target);
    }
    std::unique_ptr<ObjectCompiler> compiler = std::move(idle.back());
    idle.pop_back();
    return compiler;
  }

  void giveBack(std::unique_ptr<ObjectCompiler> compiler) {
    std::lock_guard lock(mutex);
    idle.push_back(std::move(compiler));
  }

  std::string text(const tile::Program& program, std::string (ObjectCompiler::*textOf)(const tile::Program&)) {
    std::unique_ptr<ObjectCompiler> compiler = borrow();
    std::string text = (*compiler.*textOf)(program);
    giveBack(std::move(compiler));
    return text;
  }

  KernelPtr fromDisk(Hash128 key) {
    std::optional<std::string> object = options.disk ? options.disk->load(key) : std::nullopt;
    if (!object) {
      return nullptr;
    }
    KernelPtr kernel = loadObject(*object);
    if (!kernel) {
      options.disk->drop(key);
      return nullptr;
    }
    diskHits++;
    return kernel;
  }

  KernelPtr make(const tile::Program& program, Hash128 key, ObjectCompiler& compiler) {
    std::string object = compiler.object(program);
    compiles++;
    KernelPtr kernel = loadObject(object);
    invariant(kernel != nullptr, "[llvm] the object of kernel {} could not be loaded", program.name);
    if (options.disk) {
      options.disk->store(key, object);
    }
    return kernel;
  }
};

CpuCompiler::CpuCompiler(CpuCompilerOptions options) : state_(std::make_unique<State>()) {
  state_->target = options.target ? *options.target : hostTarget();
  state_->options = std::move(options);
  state_->keyPrefix =
      fmt::format("cpu emitter {} llvm {} cpu {} features {} vector {}\n", kCpuEmitterVersion, llvmVersion(),
                  state_->target.cpu, state_->target.features, state_->target.vectorBytes);
}

CpuCompiler::~CpuCompiler() = default;

std::vector<KernelPtr> CpuCompiler::compile(std::span<const tile::Program> programs) {
  State& s = *state_;
  std::vector<KernelPtr> result(programs.size());
  std::vector<Hash128> keys = mapped(programs, [&](const tile::Program& program) { return s.keyOf(program); });
  std::vector<size_t> missing;  // first of each key
  for (int64_t i = 0; i < std::ssize(programs); i++) {
    result[i] = s.find(keys[i]);
    if (result[i]) {
      s.memoryHits++;
    } else if (std::ranges::none_of(missing, [&](size_t m) { return keys[m] == keys[i]; })) {
      missing.push_back(i);
    }
  }
  std::vector<size_t> toCompile;
  for (size_t i : missing) {
    result[i] = s.fromDisk(keys[i]);
    if (result[i]) {
      result[i] = s.keep(keys[i], result[i]);
    } else {
      toCompile.push_back(i);
    }
  }
  std::atomic<size_t> next{0};
  std::mutex failureMutex;
  std::exception_ptr failure;
  auto work = [&] {
    std::unique_ptr<ObjectCompiler> compiler;
    for (size_t k; (k = next.fetch_add(1)) < toCompile.size();) {
      size_t i = toCompile[k];
      try {
        compiler = compiler ? std::move(compiler) : s.borrow();
        result[i] = s.keep(keys[i], s.make(programs[i], keys[i], *compiler));
      } catch (...) {
        std::lock_guard lock(failureMutex);
        failure = failure ? failure : std::current_exception();
      }
    }
    if (compiler) {
      s.giveBack(std::move(compiler));
    }
  };
  int64_t most = s.options.threads > 0 ? s.options.threads : availableCores();
  {
    std::vector<std::jthread> helpers;
    try {
      for (int64_t t = 1; t < std::min<int64_t>(most, std::ssize(toCompile)); t++) {
        helpers.emplace_back(work);
      }
    } catch (const std::exception&) {
      // The system gives no more threads. The threads that have started, and this one, compile all kernels.
    }
    work();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  for (int64_t i = 0; i < std::ssize(programs); i++) {
    auto first = std::ranges::find_if(missing, [&](size_t m) { return keys[m] == keys[i]; });
    result[i] = result[i] ? result[i] : result[*first];
  }
  return result;
}

CpuCompilerCounters CpuCompiler::counters() const {
  return {.compiles = state_->compiles, .memoryHits = state_->memoryHits, .diskHits = state_->diskHits};
}

const CpuTarget& CpuCompiler::target() const { return state_->target; }

std::string CpuCompiler::irText(const tile::Program& program) const {
  return state_->text(program, &ObjectCompiler::irText);
}

std::string CpuCompiler::assemblyText(const tile::Program& program) const {
  return state_->text(program, &ObjectCompiler::assemblyText);
}

}  // namespace meshfuse
