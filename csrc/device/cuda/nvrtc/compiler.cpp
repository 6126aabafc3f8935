#include "device/cuda/nvrtc/compiler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <regex>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/nvrtc/library.h"

namespace meshfuse {

namespace {

void succeed(nvrtc::Result status, std::string_view call) {
  deviceCheck(status == nvrtc::Result::Success, "[nvrtc] {} failed: {} ({})", call,
              nvrtcLibrary().getErrorString(status), static_cast<int>(status));
}

NvrtcLibrary& loadedNvrtc() {
  NvrtcLibrary& n = nvrtcLibrary();
  deviceCheck(n.usable(),
              "[nvrtc] CUDA kernels cannot be compiled: {}; install the CUDA 13 libraries or set "
              "MESHFUSE_CUDA_LIBRARIES to their folder",
              n.reason());
  return n;
}

// Generated kernels use cp.async and bfloat16, which earlier ones lack.
constexpr int kOldestArchitecture = 80;

// A compiled program; destroyed with this object.
class Program {
 public:
  enum class Log : uint8_t { Usual, WithResources };
  Program(std::string_view text, std::string_view arch, Log log = Log::Usual) : nvrtc_(loadedNvrtc()) {
    const std::string source(text);
    succeed(nvrtc_.createProgram(&program_, source.c_str(), "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
    std::vector<std::string> options = compileOptions(arch);
    if (log == Log::WithResources) {
      options.emplace_back("--ptxas-options=-v");
    }
    std::vector<const char*> pointers = mapped(options, &std::string::c_str);
    nvrtc::Result status = nvrtc_.compileProgram(program_, pointers.size(), pointers.data());
    size_t size = 0;
    nvrtc_.getProgramLogSize(program_, &size);
    log_.resize(size);
    nvrtc_.getProgramLog(program_, log_.data());
    log_.resize(size > 0 ? size - 1 : 0);
    if (status != nvrtc::Result::Success) {
      std::string why = nvrtc_.getErrorString(status);
      nvrtc_.destroyProgram(&program_);
      throwInternalError(fmt::format("[nvrtc] a generated kernel does not compile for {}: {}\n{}\n{}", arch, why, log_,
                                     numbered(text)));
    }
  }
  ~Program() { nvrtc_.destroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  static std::vector<std::string> compileOptions(std::string_view arch) {
    std::vector<std::string> options = {fmt::format("--gpu-architecture={}", arch), "--std=c++20"};
    const NvrtcLibrary& n = loadedNvrtc();
    if (n.major >= 13) {
      options.emplace_back(
          "--minimal");  // leaves out what kernels without includes cannot use: 2 ms of each compilation
    }
    return options;
  }

  std::string cubin() const {
    return output(nvrtc_.getCubinSize, "nvrtcGetCUBINSize", nvrtc_.getCubin, "nvrtcGetCUBIN");
  }
  std::string ptx() const {
    std::string text = output(nvrtc_.getPtxSize, "nvrtcGetPTXSize", nvrtc_.getPtx, "nvrtcGetPTX");
    text.resize(text.empty() ? 0 : text.size() - 1);  // it ends with a zero
    return text;
  }
  const std::string& log() const { return log_; }

 private:
  std::string output(nvrtc::Result (*sizeOf)(nvrtc::Program, size_t*), std::string_view sizeCall,
                     nvrtc::Result (*get)(nvrtc::Program, char*), std::string_view getCall) const {
    size_t size = 0;
    succeed(sizeOf(program_, &size), sizeCall);
    std::string bytes(size, '\0');
    succeed(get(program_, bytes.data()), getCall);
    return bytes;
  }

  static std::string numbered(std::string_view text) {
    std::string all;
    for (int line = 1; !text.empty(); line++) {
      size_t end = text.find('\n');
      end = end == std::string_view::npos ? text.size() : end + 1;
      all += fmt::format("{:4} {}", line, text.substr(0, end));
      text.remove_prefix(end);
    }
    return all;
  }

  NvrtcLibrary& nvrtc_;
  nvrtc::Program program_ = nullptr;
  std::string log_;
};

Hash128 cacheKey(std::string_view text, std::string_view arch) {
  const NvrtcLibrary& n = loadedNvrtc();
  return hashText(
      fmt::format("cubin nvrtc {}.{} {}\n{}", n.major, n.minor, joined(Program::compileOptions(arch), " "), text));
}

}  // namespace

Cubin NvrtcCompiler::compileCubin(std::string_view text, std::string_view arch) {
  Cubin cubin{.bytes = {}, .log = {}, .text = hashText(text)};
  Hash128 key = cacheKey(text, arch);
  if (std::optional<std::string> bytes = cache_ == nullptr ? std::nullopt : cache_->load(key)) {
    cubin.bytes = std::move(*bytes);
    cubin.fromDisk = true;
    fromDisk_++;
    return cubin;
  }
  auto start = std::chrono::steady_clock::now();
  Program program(text, arch);
  cubin.bytes = program.cubin();
  cubin.log = program.log();
  nanoseconds_ +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  compiled_++;
  if (cache_ != nullptr) {
    cache_->store(key, cubin.bytes);
  }
  return cubin;
}

std::string NvrtcCompiler::compilePtx(std::string_view text, std::string_view arch) {
  return Program(text, arch).ptx();
}

KernelResources NvrtcCompiler::resources(std::string_view text, std::string_view arch) {
  const Program program(text, arch, Program::Log::WithResources);
  const std::string& log = program.log();
  // "8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads", "Used 26 registers": the number before, or after, each of these words
  const auto number = [&](std::string_view before, std::string_view after) {
    std::smatch found;
    const std::regex pattern(fmt::format("{}([0-9]+) {}", before, after));
    invariant(std::regex_search(log, found, pattern), "[nvrtc] the log for {} does not say \"{}<number> {}\":\n{}",
              arch, before, after, log);
    return std::stoll(found[1].str());
  };
  return {.registers = number("Used ", "registers"),
          .spilledBytes = number("", "bytes spill stores") + number("", "bytes spill loads"),
          .stackBytes = number("", "bytes stack frame")};
}

std::vector<int> NvrtcCompiler::architectures() {
  const NvrtcLibrary& n = loadedNvrtc();
  int count = 0;
  succeed(n.countArchitectures(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> all(count);
  succeed(n.listArchitectures(all.data()), "nvrtcGetSupportedArchs");
  std::erase_if(all, [](int number) { return number < kOldestArchitecture; });
  return all;
}

void NvrtcCompiler::expectArchitecture(std::string_view arch) {
  const NvrtcLibrary& n = loadedNvrtc();
  const std::vector<std::string> names =
      mapped(architectures(), [](int number) { return fmt::format("sm_{}", number); });
  bool known = std::ranges::any_of(names, [&](const std::string& name) {
    // a letter selects features of only this architecture, or its family
    return arch == name ||
           (arch.size() == name.size() + 1 && arch.starts_with(name) && (arch.back() == 'a' || arch.back() == 'f'));
  });
  if (known) {
    // which of them take a letter NVRTC does not list
    try {
      const Program empty("", arch);
    } catch (const InternalError&) {
      known = false;
    }
  }
  check(known,
        "[nvrtc] kernels do not compile for \"{}\"; NVRTC {}.{} has {}, some of them with a letter such as sm_90a",
        arch, n.major, n.minor, joined(names, ", "));
}

NvrtcCounters NvrtcCompiler::counters() const {
  return {compiled_.load(), fromDisk_.load(), static_cast<double>(nanoseconds_.load()) * 1e-6};
}

}  // namespace meshfuse
