// The simulated cuBLASLt: products of matrices on the streams of the simulated driver, written from the comments of cublasLt.h (CUDA 13.0)
// and the chapter "cuBLASLt API" of NVIDIA's cuBLAS documentation. The engine computes the products.
//
// Errors that these name are returned. What they forbid without naming an error, and what is not simulated, ends the program with a report.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "../cuda/client.h"
#include "../cuda/current.h"

namespace simgpu {

namespace {

enum Answer {  // cublasStatus_t
  kDone = 0,
  kNoLibrary = 1,
  kWrongValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15,
};

constexpr int kComputeFloat = 68;
constexpr int kComputeDouble = 70;
// cublasLtEpilogue_t: a set of bits, or kEpilogueNone alone
constexpr uint32_t kEpilogueNone = 1;
constexpr uint32_t kEpilogueRelu = 2;
constexpr uint32_t kEpilogueBias = 4;
constexpr uint32_t kEpilogueGelu = 32;
constexpr uint32_t kEpilogues[] = {kEpilogueNone, kEpilogueRelu,
                                   kEpilogueBias, kEpilogueRelu | kEpilogueBias,
                                   kEpilogueGelu, kEpilogueGelu | kEpilogueBias};
constexpr uint32_t kReducesInOutputType = 4;

// cublasLtMatmulPreferenceAttributes_t: unless the preference says otherwise, the heuristic takes matrices to have this alignment. Of a
// vector that is added it sees the address itself (CUBLASLT_MATMUL_DESC_BIAS_POINTER).
constexpr uint32_t kUsualAlignment = 256;

// The documentation of cublasLtMatmul asks it twice: in its text, "at least a multiple of 256 bytes", and for the parameter `workspace`, "lowest
// 8 bits of address must be 0". cublasLt.h does not say it, and neither names an error.
constexpr uint64_t kWorkspaceAlignment = 256;

// Products of more multiplications want workspace, smaller ones none: users meet both.
constexpr uint64_t kMostWithoutWorkspace = 1000;
constexpr uint64_t kWantedWorkspace = 4096;

struct Handle {
  uint32_t device = 0;
};

struct Description {  // cublasLtMatmulDesc_t
  int compute = kComputeFloat;
  Element scale = Element::Float;
  int32_t transposeA = 0;
  int32_t transposeB = 0;
  uint32_t epilogue = kEpilogueNone;
  const void* bias = nullptr;

  bool hasBias() const { return (epilogue & kEpilogueBias) != 0; }
  Activation activation() const {
    return (epilogue & kEpilogueRelu) != 0   ? Activation::Relu
           : (epilogue & kEpilogueGelu) != 0 ? Activation::Gelu
                                             : Activation::None;
  }
};

struct Preference {
  uint64_t mostWorkspace = 0;
  uint32_t reductions = 7;  // CUBLASLT_REDUCTION_SCHEME_MASK: any
  uint32_t alignments[4] = {kUsualAlignment, kUsualAlignment, kUsualAlignment, kUsualAlignment};  // of A, B, C, D
};

struct Algorithm {              // cublasLtMatmulAlgo_t; may be kept and given to another process
  uint64_t problem = 0;         // a hash
  uint32_t alignments[4] = {};  // that it was chosen for
  uint64_t biasAlignment = 0;
  uint64_t workspaceBytes = 0;
  uint64_t roundsParts = 0;  // as in MatrixProduct
  uint64_t unused = 0;
  uint64_t sum = 0;  // a hash of what is above
};
static_assert(sizeof(Algorithm) == 64);

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspaceBytes;
  int state;
  float waves;
  int reserved[4];
};

// No handle is given twice, so that none is taken for another after its end.
std::atomic<uint64_t> lastHandle = 0;
constexpr uint64_t kBetweenHandles = 64;

// The objects of one kind that exist, by their handles. Thread-safe.
template <class Object>
class Objects {
 public:
  void* add(const Object& object) {
    const std::lock_guard lock(mutex_);
    const uint64_t handle = lastHandle += kBetweenHandles;
    all_[handle] = object;
    return reinterpret_cast<void*>(handle);
  }
  bool remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    return all_.erase(reinterpret_cast<uint64_t>(handle)) == 1;
  }
  std::optional<Object> find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto it = all_.find(reinterpret_cast<uint64_t>(handle));
    return it == all_.end() ? std::nullopt : std::optional(it->second);
  }
  // change(object) returns an answer.
  template <class Change>
  int update(const void* handle, const Change& change) {
    const std::lock_guard lock(mutex_);
    const auto it = all_.find(reinterpret_cast<uint64_t>(handle));
    return it == all_.end() ? kWrongValue : change(it->second);
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Object> all_;
};

template <class Object>
Objects<Object>& objects() {
  static Objects<Object> all;
  return all;
}

[[noreturn]] void endUnknown(const char* call, const char* what, int64_t number) {
  endProgram(call, std::string(what) + " " + std::to_string(number) + " is not simulated");
}

// The value of an attribute, whose size must be that of its type.
template <class Value>
int take(const void* from, size_t bytes, Value& to) {
  if (from == nullptr || bytes != sizeof to) {
    return kWrongValue;
  }
  std::memcpy(&to, from, sizeof to);
  return kDone;
}

// -- the choice of an algorithm ---------------------------------------------------------------------------------------

struct Problem {
  Description what;
  Matrices a, b, c, d;  // without addresses

  uint64_t inner() const { return what.transposeA != 0 ? a.rows : a.columns; }
};

uint64_t hashOf(const void* bytes, size_t count) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : std::string_view(static_cast<const char*>(bytes), count)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// All but the address of the bias.
uint64_t hashOf(const Problem& p) {
  std::string text;
  const auto add = [&](auto value) { text += std::to_string(value) + " "; };
  add(p.what.compute);
  add(static_cast<uint32_t>(p.what.scale));
  add(p.what.transposeA);
  add(p.what.transposeB);
  add(p.what.epilogue);
  for (const Matrices* m : {&p.a, &p.b, &p.c, &p.d}) {
    add(static_cast<uint32_t>(m->type));
    add(m->batches);
    add(m->rows);
    add(m->columns);
    add(m->columnStride);
    add(m->batchStride);
  }
  return hashOf(text.data(), text.size());
}

uint64_t sumOf(const Algorithm& a) { return hashOf(&a, offsetof(Algorithm, sum)); }

uint64_t alignmentOf(const void* address) {
  const auto bits = reinterpret_cast<uint64_t>(address) | kUsualAlignment;
  return uint64_t{1} << std::countr_zero(bits);
}

// Whether the layouts fit each other, and are ones that memory may have.
bool isConsistent(const Problem& p) {
  for (const Matrices* m : {&p.a, &p.b, &p.c, &p.d}) {
    const bool isRepeatedColumn = m == &p.c && m->columnStride == 0;  // C may be broadcast
    if (m->rows == 0 || m->columns == 0 || m->batches <= 0 || m->batches != p.d.batches ||
        (!isRepeatedColumn && m->columnStride < static_cast<int64_t>(m->rows))) {
      return false;
    }
  }
  const bool tA = p.what.transposeA != 0;
  const bool tB = p.what.transposeB != 0;
  return (tA ? p.a.columns : p.a.rows) == p.d.rows && (tB ? p.b.rows : p.b.columns) == p.d.columns &&
         (tB ? p.b.columns : p.b.rows) == p.inner() && p.c.rows == p.d.rows && p.c.columns == p.d.columns;
}

bool isSupported(const Problem& p) {
  constexpr uint64_t kMostExtent = INT32_MAX;
  for (const Matrices* m : {&p.a, &p.b, &p.c, &p.d}) {
    if (m->rows > kMostExtent || m->columns > kMostExtent) {
      return false;
    }
  }
  const bool isDouble = p.d.type == Element::Double;
  const bool isWidened = (p.a.type == Element::Half || p.a.type == Element::BFloat16) && p.d.type == Element::Float;
  return p.a.type == p.b.type && p.c.type == p.d.type && (p.a.type == p.d.type || isWidened) &&
         p.what.compute == (isDouble ? kComputeDouble : kComputeFloat) &&
         p.what.scale == (isDouble ? Element::Double : Element::Float) &&
         (p.what.epilogue == kEpilogueNone || !isDouble);
}

// Done, or why there is no algorithm.
int choose(const Problem& p, const Preference& preference, Algorithm& chosen) {
  if (!isConsistent(p)) {
    return kWrongValue;
  }
  if (!isSupported(p)) {
    return kNotSupported;
  }
  chosen = Algorithm{.problem = hashOf(p)};
  std::ranges::copy(preference.alignments, chosen.alignments);
  chosen.biasAlignment = p.what.hasBias() ? alignmentOf(p.what.bias) : 1;
  const double products =
      static_cast<double>(p.d.rows) * static_cast<double>(p.d.columns) * static_cast<double>(p.inner());
  chosen.workspaceBytes =
      products > static_cast<double>(kMostWithoutWorkspace) ? std::min(preference.mostWorkspace, kWantedWorkspace) : 0;
  chosen.roundsParts = (preference.reductions & kReducesInOutputType) != 0 ? 1 : 0;  // it may, so it does
  chosen.sum = sumOf(chosen);
  return kDone;
}

std::optional<Problem> problemOf(const void* product, const void* a, const void* b, const void* c, const void* d) {
  const auto what = objects<Description>().find(product);
  const auto aLayout = objects<Matrices>().find(a);
  const auto bLayout = objects<Matrices>().find(b);
  const auto dLayout = objects<Matrices>().find(d);
  const auto cLayout = c == nullptr ? dLayout : objects<Matrices>().find(c);  // left out, it is that of D
  if (!what || !aLayout || !bLayout || !cLayout || !dLayout) {
    return std::nullopt;
  }
  return Problem{.what = *what, .a = *aLayout, .b = *bLayout, .c = *cLayout, .d = *dLayout};
}

// -- cublasLtMatmul ---------------------------------------------------------------------------------------------------

constexpr const char* kMultiply = "cublasLtMatmul";

double scalar(const char* name, const void* at, Element type) {
  if (isDeviceAddress(reinterpret_cast<uint64_t>(at))) {
    endProgram(kMultiply, std::string(name) + " is in device memory; the pointer mode is that of the host");
  }
  if (type == Element::Double) {
    double value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void expectOnDevice(const char* name, const void* at) {
  if (!isDeviceAddress(reinterpret_cast<uint64_t>(at))) {
    endProgram(kMultiply, std::string(name) + " is a pointer of the host; a device pointer is expected");
  }
}

void expectAligned(const char* name, const void* at, uint64_t alignment) {
  if (reinterpret_cast<uint64_t>(at) % alignment != 0) {
    endProgram(kMultiply, std::string(name) + " is aligned to " + std::to_string(alignmentOf(at)) +
                              " bytes, but the algorithm was chosen for matrices that are aligned to " +
                              std::to_string(alignment));
  }
}

struct Pointer {
  const char* name;
  const void* at;
  uint64_t element;    // bytes
  uint64_t alignment;  // that the algorithm expects
};

// What the documentation asks of pointers.
int check(const std::initializer_list<Pointer>& pointers) {
  for (const Pointer& p : pointers) {
    if (p.at == nullptr) {
      continue;
    }
    expectOnDevice(p.name, p.at);
    if (reinterpret_cast<uint64_t>(p.at) % p.element != 0) {
      return kWrongValue;
    }
  }
  for (const Pointer& p : pointers) {
    expectAligned(p.name, p.at, p.alignment);
  }
  return kDone;
}

int checkWorkspace(const Algorithm& algorithm, const void* workspace, size_t bytes) {
  if (bytes < algorithm.workspaceBytes || (workspace == nullptr && algorithm.workspaceBytes != 0)) {
    return kWrongValue;
  }
  if (workspace == nullptr || bytes == 0) {
    return kDone;
  }
  expectOnDevice("the workspace", workspace);
  if (reinterpret_cast<uint64_t>(workspace) % kWorkspaceAlignment != 0) {
    endProgram(kMultiply, "the workspace is aligned to " + std::to_string(alignmentOf(workspace)) + " bytes, not to " +
                              std::to_string(kWorkspaceAlignment));
  }
  return kDone;
}

// The algorithm that is given, if it is one for this problem; null asks for one with default preferences.
int algorithmFor(const Problem& p, const void* given, Algorithm& algorithm) {
  if (const int answer = choose(p, Preference{}, algorithm); answer != kDone || given == nullptr) {
    return answer;
  }
  const uint64_t problem = algorithm.problem;
  std::memcpy(&algorithm, given, sizeof algorithm);
  return algorithm.sum == sumOf(algorithm) && algorithm.problem == problem ? kDone : kWrongValue;
}

// The device of the handle, which must be that of the current context: each device needs a handle of its own.
uint32_t deviceOf(const Handle& handle) {
  uint32_t device = 0;
  if (current(device) != kSuccess) {
    endProgram(kMultiply, "no context is current");
  }
  if (device != handle.device) {
    endProgram(kMultiply, "the handle was made for device " + std::to_string(handle.device) + ", but device " +
                              std::to_string(device) + " is current");
  }
  return device;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  return 139900;  // that no real one has
}

const char* cublasLtGetStatusString(int status) {
  switch (status) {
    case kDone:
      return "success";
    case kNoLibrary:
      return "the library is not initialized";
    case 3:
      return "no memory left";
    case kWrongValue:
      return "a parameter has a wrong value";
    case 8:
      return "not for this architecture";
    case kExecutionFailed:
      return "the device failed to execute";
    case 14:
      return "internal error";
    case kNotSupported:
      return "not supported";
    default:
      return "unknown status";
  }
}

// -- objects ----------------------------------------------------------------------------------------------------------

int cublasLtCreate(void** handle) {
  if (handle == nullptr) {
    return kWrongValue;
  }
  Handle made;
  if (current(made.device) != kSuccess) {
    return kNoLibrary;
  }
  *handle = objects<Handle>().add(made);
  return kDone;
}

int cublasLtDestroy(void* handle) { return objects<Handle>().remove(handle) ? kDone : kNoLibrary; }

int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
  if (product == nullptr) {
    return kWrongValue;
  }
  if (compute != kComputeFloat && compute != kComputeDouble) {
    endUnknown("cublasLtMatmulDescCreate", "compute type", compute);
  }
  if (scale != static_cast<int>(Element::Float) && scale != static_cast<int>(Element::Double)) {
    endUnknown("cublasLtMatmulDescCreate", "scale type", scale);
  }
  *product = objects<Description>().add({.compute = compute, .scale = static_cast<Element>(scale)});
  return kDone;
}

int cublasLtMatmulDescDestroy(void* product) { return objects<Description>().remove(product) ? kDone : kWrongValue; }

int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t bytes) {
  constexpr const char* kName = "cublasLtMatmulDescSetAttribute";
  const auto set = [&](Description& d) {
    switch (attribute) {
      case 3:  // CUBLASLT_MATMUL_DESC_TRANSA
        return take(value, bytes, d.transposeA);
      case 4:  // TRANSB
        return take(value, bytes, d.transposeB);
      case 7:  // EPILOGUE
        return take(value, bytes, d.epilogue);
      case 8:  // BIAS_POINTER
        return take(value, bytes, d.bias);
      default:
        endUnknown(kName, "attribute", attribute);
    }
  };
  const int answer = objects<Description>().update(product, set);
  if (const auto d = objects<Description>().find(product); d && answer == kDone) {
    for (const int32_t transpose : {d->transposeA, d->transposeB}) {
      if (transpose != 0 && transpose != 1) {
        endUnknown(kName, "operation", transpose);
      }
    }
    if (std::ranges::find(kEpilogues, d->epilogue) == std::end(kEpilogues)) {
      endUnknown(kName, "epilogue", d->epilogue);
    }
  }
  return answer;
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t columnStride) {
  if (layout == nullptr) {
    return kWrongValue;
  }
  if (type != 0 && type != 1 && type != 2 && type != 14) {
    endUnknown("cublasLtMatrixLayoutCreate", "type", type);
  }
  *layout = objects<Matrices>().add(
      {.type = static_cast<Element>(type), .rows = rows, .columns = columns, .columnStride = columnStride});
  return kDone;
}

int cublasLtMatrixLayoutDestroy(void* layout) { return objects<Matrices>().remove(layout) ? kDone : kWrongValue; }

int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  return objects<Matrices>().update(layout, [&](Matrices& m) {
    switch (attribute) {
      case 5:  // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
        return take(value, bytes, m.batches);
      case 6:  // STRIDED_BATCH_OFFSET
        return take(value, bytes, m.batchStride);
      default:
        endUnknown("cublasLtMatrixLayoutSetAttribute", "attribute", attribute);
    }
  });
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  if (preference == nullptr) {
    return kWrongValue;
  }
  *preference = objects<Preference>().add({});
  return kDone;
}

int cublasLtMatmulPreferenceDestroy(void* preference) {
  return objects<Preference>().remove(preference) ? kDone : kWrongValue;
}

int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  constexpr const char* kName = "cublasLtMatmulPreferenceSetAttribute";
  return objects<Preference>().update(preference, [&](Preference& p) -> int {
    if (attribute == 1) {  // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
      return take(value, bytes, p.mostWorkspace);
    }
    if (attribute == 3) {  // REDUCTION_SCHEME_MASK
      return take(value, bytes, p.reductions);
    }
    if (attribute < 5 || attribute > 8) {  // MIN_ALIGNMENT_A_BYTES to MIN_ALIGNMENT_D_BYTES
      endUnknown(kName, "attribute", attribute);
    }
    const int answer = take(value, bytes, p.alignments[attribute - 5]);
    if (answer == kDone && !std::has_single_bit(p.alignments[attribute - 5])) {
      endProgram(kName, "an alignment is a power of 2, not " + std::to_string(p.alignments[attribute - 5]));
    }
    return answer;
  });
}

// -- products ---------------------------------------------------------------------------------------------------------

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                                   int asked, Heuristic* results, int* found) {
  if (found != nullptr) {
    *found = 0;
  }
  if (!objects<Handle>().find(handle)) {
    return kNoLibrary;
  }
  const auto problem = problemOf(product, a, b, c, d);
  const auto preferred = objects<Preference>().find(preference);
  if (!problem || !preferred || asked <= 0 || results == nullptr || found == nullptr) {
    return kWrongValue;
  }
  Algorithm chosen;
  if (const int answer = choose(*problem, *preferred, chosen); answer != kDone) {
    return answer;
  }
  *results = {.algorithm = chosen, .workspaceBytes = chosen.workspaceBytes, .state = kDone, .waves = 1, .reserved = {}};
  *found = 1;
  return kDone;
}

// The field `algorithm` of the result stays as it is.
int cublasLtMatmulAlgoCheck(void* handle, void* product, void* a, void* b, void* c, void* d, const void* given,
                            Heuristic* result) {
  if (!objects<Handle>().find(handle)) {
    return kNoLibrary;
  }
  const auto problem = problemOf(product, a, b, c, d);
  if (!problem || given == nullptr || result == nullptr) {
    return kWrongValue;
  }
  Algorithm algorithm;
  if (const int answer = algorithmFor(*problem, given, algorithm); answer != kDone) {
    return answer;
  }
  result->workspaceBytes = algorithm.workspaceBytes;
  result->state = kDone;
  result->waves = 1;
  return kDone;
}

int cublasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* aLayout, const void* b,
                   void* bLayout, const void* beta, const void* c, void* cLayout, void* d, void* dLayout,
                   const void* given, void* workspace, size_t workspaceBytes, void* stream) {
  const auto library = objects<Handle>().find(handle);
  if (!library) {
    return kNoLibrary;
  }
  const uint32_t device = deviceOf(*library);
  const auto problem = problemOf(product, aLayout, bLayout, cLayout, dLayout);
  if (!problem || alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr) {
    return kWrongValue;
  }
  Algorithm algorithm;
  if (const int answer = algorithmFor(*problem, given, algorithm); answer != kDone) {
    return answer;
  }
  MatrixProduct p{.a = problem->a, .b = problem->b, .c = problem->c, .d = problem->d};
  p.alpha = scalar("alpha", alpha, problem->what.scale);
  p.beta = scalar("beta", beta, problem->what.scale);
  const bool hasBias = problem->what.hasBias();
  const void* const bias = hasBias ? problem->what.bias : nullptr;
  if ((c == nullptr && p.beta != 0) || (hasBias && bias == nullptr)) {
    return kWrongValue;
  }
  const auto& alignments = algorithm.alignments;
  if (const int answer = check({{"A", a, bytesOf(p.a.type), alignments[0]},
                                {"B", b, bytesOf(p.b.type), alignments[1]},
                                {"C", c, bytesOf(p.c.type), alignments[2]},
                                {"D", d, bytesOf(p.d.type), alignments[3]},
                                {"the bias", bias, bytesOf(p.d.type), algorithm.biasAlignment}});
      answer != kDone) {
    return answer;
  }
  if (const int answer = checkWorkspace(algorithm, workspace, workspaceBytes); answer != kDone) {
    return answer;
  }
  if (isToFail("product")) {
    return kExecutionFailed;
  }
  p.a.address = reinterpret_cast<uint64_t>(a);
  p.b.address = reinterpret_cast<uint64_t>(b);
  p.c.address = reinterpret_cast<uint64_t>(c);
  p.d.address = reinterpret_cast<uint64_t>(d);
  p.transposeA = static_cast<uint32_t>(problem->what.transposeA);
  p.transposeB = static_cast<uint32_t>(problem->what.transposeB);
  p.bias = reinterpret_cast<uint64_t>(bias);
  p.activation = problem->what.activation();
  p.workspace = reinterpret_cast<uint64_t>(workspace);
  p.workspaceBytes = workspaceBytes;
  p.workspaceNeeded = algorithm.workspaceBytes;
  p.roundsParts = static_cast<uint32_t>(algorithm.roundsParts);
  Request r{.call = Call::Product, .device = device, .stream = streamOf(kMultiply, stream, device)};
  std::strncpy(r.name, kMultiply, sizeof r.name - 1);
  const std::string_view payload(reinterpret_cast<const char*>(&p), sizeof p);
  return ask(r, payload).status == kSuccess ? kDone : kExecutionFailed;
}

}  // extern "C"

}  // namespace simgpu
