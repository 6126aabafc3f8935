// The simulated NVRTC, written from its documentation. A cubin is an image that holds the text (protocol.h); the simulated driver loads it.
//
// SIMGPU_REAL_NVRTC=FILE: that library compiles each text too, with the same options, and what it refuses is refused here.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "../protocol.h"

namespace simgpu {

namespace {

enum Result {  // nvrtcResult
  kDone = 0,
  kOutOfMemoryHere = 1,
  kNotCreated = 2,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kRefused = 6,
};

constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

struct Program {
  std::string text;
  std::string name;
  std::string log;
  std::string cubin;  // empty until it is compiled
};

// The programs that exist. Thread-safe.
class Programs {
 public:
  void add(const Program* p) {
    const std::lock_guard lock(mutex_);
    all_.insert(p);
  }
  bool remove(const Program* p) {
    const std::lock_guard lock(mutex_);
    return all_.erase(p) == 1;
  }
  bool contains(const Program* p) const {
    const std::lock_guard lock(mutex_);
    return all_.contains(p);
  }

 private:
  mutable std::mutex mutex_;
  std::set<const Program*> all_;
};

Programs& programs() {
  static Programs all;
  return all;
}

bool isKnown(std::string_view architecture) {
  for (const int number : kArchitectures) {
    const std::string name = "sm_" + std::to_string(number);
    if (architecture == name || (number >= 90 && architecture == name + "a") ||
        (number >= 100 && architecture == name + "f")) {
      return true;
    }
  }
  return false;
}

// The vendor's NVRTC, if SIMGPU_REAL_NVRTC names it.
struct RealNvrtc {
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(void*, int, const char* const*) = nullptr;
  int (*destroy)(void**) = nullptr;
  int (*logSize)(void*, size_t*) = nullptr;
  int (*log)(void*, char*) = nullptr;

  RealNvrtc() {
    const char* const file = std::getenv("SIMGPU_REAL_NVRTC");
    if (file == nullptr) {
      return;
    }
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "simulated NVRTC: %s\n", dlerror());
      std::_Exit(kExitStatus);
    }
    find(library, "nvrtcCreateProgram", create);
    find(library, "nvrtcCompileProgram", compile);
    find(library, "nvrtcDestroyProgram", destroy);
    find(library, "nvrtcGetProgramLogSize", logSize);
    find(library, "nvrtcGetProgramLog", log);
  }

  template <class Function>
  static void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
  }

  int status(const Program& p, int count, const char* const* options, std::string& text) const {
    if (create == nullptr) {
      return kDone;
    }
    void* real = nullptr;
    int status = create(&real, p.text.c_str(), p.name.c_str(), 0, nullptr, nullptr);
    if (status != kDone) {
      return status;
    }
    status = compile(real, count, options);
    size_t bytes = 0;
    logSize(real, &bytes);
    text.resize(bytes);
    log(real, text.data());
    text.resize(std::strlen(text.c_str()));
    destroy(&real);
    return status;
  }
};

int give(const Program* p, const std::string& bytes, size_t* size) {
  if (!programs().contains(p)) {
    return kInvalidProgram;
  }
  if (size == nullptr) {
    return kInvalidInput;
  }
  *size = bytes.size();
  return kDone;
}

int give(const Program* p, const std::string& bytes, char* to) {
  if (!programs().contains(p)) {
    return kInvalidProgram;
  }
  if (to == nullptr) {
    return kInvalidInput;
  }
  bytes.copy(to, bytes.size());
  return kDone;
}

std::string terminated(const std::string& text) { return text + '\0'; }

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) {
    return kInvalidInput;
  }
  *major = 13;
  *minor = 900;  // that no real one has: whoever keeps cubins by version must not take these for real ones
  return kDone;
}

const char* nvrtcGetErrorString(int result) {
  static const char* const kTexts[] = {"NVRTC_SUCCESS",
                                       "NVRTC_ERROR_OUT_OF_MEMORY",
                                       "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                       "NVRTC_ERROR_INVALID_INPUT",
                                       "NVRTC_ERROR_INVALID_PROGRAM",
                                       "NVRTC_ERROR_INVALID_OPTION",
                                       "NVRTC_ERROR_COMPILATION"};
  return result >= 0 && result <= kRefused ? kTexts[result] : "NVRTC_ERROR unknown";
}

int nvrtcGetNumSupportedArchs(int* count) {
  if (count == nullptr) {
    return kInvalidInput;
  }
  *count = static_cast<int>(std::size(kArchitectures));
  return kDone;
}

int nvrtcGetSupportedArchs(int* architectures) {
  if (architectures == nullptr) {
    return kInvalidInput;
  }
  std::memcpy(architectures, kArchitectures, sizeof kArchitectures);
  return kDone;
}

int nvrtcCreateProgram(Program** program, const char* text, const char* name, int headers, const char* const*,
                       const char* const*) {
  if (program == nullptr || text == nullptr || headers < 0) {
    return kInvalidInput;
  }
  if (headers > 0) {
    std::fprintf(stderr, "simulated NVRTC: headers are not simulated\n");
    std::_Exit(kExitStatus);
  }
  *program = new Program{.text = text, .name = name == nullptr ? "default_program" : name, .log = {}, .cubin = {}};
  programs().add(*program);
  return kDone;
}

int nvrtcDestroyProgram(Program** program) {
  if (program == nullptr || !programs().remove(*program)) {
    return kInvalidProgram;
  }
  delete *program;
  *program = nullptr;
  return kDone;
}

int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  if (!programs().contains(program)) {
    return kInvalidProgram;
  }
  constexpr std::string_view kArchitecture = "--gpu-architecture=";
  std::string architecture = "sm_75";
  for (int i = 0; i < count; i++) {
    const std::string_view option = options[i];
    if (option.starts_with(kArchitecture)) {
      architecture = option.substr(kArchitecture.size());
      if (!isKnown(architecture)) {
        program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
        return kInvalidOption;
      }
    } else if (!option.starts_with("--std=c++") && option != "--minimal") {
      program->log = "nvrtc: error: unrecognized option " + std::string(option) + " found\n";
      return kInvalidOption;
    }
  }
  static const RealNvrtc real;
  if (const int status = real.status(*program, count, options, program->log); status != kDone) {
    return status;
  }
  ImageHeader header;
  header.bytes = program->text.size();
  architecture.copy(header.architecture, sizeof header.architecture - 1);
  program->cubin.assign(reinterpret_cast<const char*>(&header), sizeof header);
  program->cubin += program->text;
  return kDone;
}

int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  return give(program, programs().contains(program) ? terminated(program->log) : "", bytes);
}

int nvrtcGetProgramLog(Program* program, char* log) {
  return give(program, programs().contains(program) ? terminated(program->log) : "", log);
}

int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  return give(program, programs().contains(program) ? program->cubin : "", bytes);
}

int nvrtcGetCUBIN(Program* program, char* cubin) {
  return give(program, programs().contains(program) ? program->cubin : "", cubin);
}

int nvrtcGetPTXSize(Program*, size_t*) {
  std::fprintf(stderr, "simulated NVRTC: PTX is not simulated\n");
  std::_Exit(kExitStatus);
}

int nvrtcGetPTX(Program*, char*) {
  std::fprintf(stderr, "simulated NVRTC: PTX is not simulated\n");
  std::_Exit(kExitStatus);
}

}  // extern "C"

}  // namespace simgpu
