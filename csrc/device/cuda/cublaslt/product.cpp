#include "device/cuda/cublaslt/product.h"

#include <bit>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

constexpr cublaslt::ReductionScheme kReductions = cublaslt::ReductionScheme::InComputeType;
constexpr int64_t kOutAlignment = 64;
constexpr uintptr_t kWorkspaceAlignment = 256;  // NVIDIA's documentation of cublasLtMatmul; that of Routine is 64

// Nothing for types that the library does not multiply.
std::optional<cublaslt::ElementType> elementType(DataType type) {
  switch (type) {
    case DataType::Float:
      return cublaslt::ElementType::Float;
    case DataType::Double:
      return cublaslt::ElementType::Double;
    case DataType::Half:
      return cublaslt::ElementType::Half;
    case DataType::BFloat16:
      return cublaslt::ElementType::BFloat16;
    default:
      return std::nullopt;
  }
}

// A factor, in the type in which products are computed.
union Scale {
  float f;
  double d;
};

bool computesInDouble(const MatrixProduct& p) { return p.operands == DataType::Double; }

// A batch of products as loops around one batch at equal distances, which is one call.
struct Batch {
  int64_t count = 1;                      // products of a call
  int64_t aStride = 0, bStride = 0;       // elements from one to the next
  std::vector<int64_t> aStarts, bStarts;  // of the calls, in elements
};

Batch batchOf(const MatrixProduct& p) {
  Batch batch;
  MatrixProduct outer = p;  // the dims that are left for loops
  while (!outer.batch.empty()) {
    const int64_t extent = outer.batch.back();
    const int64_t a = outer.a.batchStrides.back();
    const int64_t b = outer.b.batchStrides.back();
    const bool continues =
        batch.count == 1 || extent == 1 || (a == batch.aStride * batch.count && b == batch.bStride * batch.count);
    if (!continues) {
      break;
    }
    if (batch.count == 1) {
      batch.aStride = extent == 1 ? 0 : a;
      batch.bStride = extent == 1 ? 0 : b;
    }
    batch.count *= extent;
    outer.batch.pop_back();
    outer.a.batchStrides.pop_back();
    outer.b.batchStrides.pop_back();
  }
  batch.aStarts = outer.offsets(outer.a);
  batch.bStarts = outer.offsets(outer.b);
  return batch;
}

uint32_t greatestPower(int64_t number) { return static_cast<uint32_t>(number & -number); }  // of two that divides it

// That of the address of a tensor and of all starts in it.
uint32_t alignmentOf(const MatrixProduct::Operand& o, const std::vector<int64_t>& starts, DataType type) {
  int64_t bits = o.alignment;
  for (const int64_t start : starts) {
    bits |= start * dataTypeSize(type);
  }
  return greatestPower(bits);
}

template <class T>
void set(cublaslt::Product product, cublaslt::ProductAttribute attribute, T value) {
  succeed(cublasLtLibrary().productSet(product, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute",
          "attribute {}", static_cast<int>(attribute));
}

template <class T>
void set(cublaslt::MatrixLayout layout, cublaslt::LayoutAttribute attribute, T value) {
  succeed(cublasLtLibrary().layoutSet(layout, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute",
          "attribute {}", static_cast<int>(attribute));
}

template <class T>
void set(cublaslt::Preference preference, cublaslt::PreferenceAttribute attribute, T value) {
  succeed(cublasLtLibrary().preferenceSet(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", "attribute {}", static_cast<int>(attribute));
}

// `count` matrices in row-major order.
struct Matrices {
  DataType type;
  int64_t rows;
  int64_t columns;
  bool transposed = false;  // in memory as columns x rows
  int64_t leading;          // elements from one row in memory to the next
  int64_t count;
  int64_t stride;  // elements from one matrix to the next
};

// A matrix in row-major order is one of columns x rows in the library's column-major order.
cublaslt::MatrixLayout layoutOf(const Matrices& m) {
  const auto [rows, columns] = m.transposed ? std::pair(m.rows, m.columns) : std::pair(m.columns, m.rows);
  cublaslt::MatrixLayout layout = nullptr;
  succeed(cublasLtLibrary().layoutCreate(&layout, elementType(m.type).value(), rows, columns, m.leading),
          "cublasLtMatrixLayoutCreate", "{} x {} elements", rows, columns);
  if (m.count > 1) {
    set(layout, cublaslt::LayoutAttribute::BatchCount, static_cast<int32_t>(m.count));
    set(layout, cublaslt::LayoutAttribute::BatchStride, m.stride);
  }
  return layout;
}

}  // namespace

std::optional<std::string> CublasLtProduct::refuse(const Expr& op, const std::map<int64_t, Layout>& layouts) {
  const DataType type = op.tensorInputs()[0]->dtype();
  const DataType result = op.tensorOutput()->dtype();
  const bool hasBias = op.tensorInputs().size() > 2;
  if (!elementType(type)) {
    return fmt::format("the library has no matrix product of {}", meshfuse::name(type));
  }
  if (hasBias && type == DataType::Double) {
    return "the library adds no bias of type Double";
  }
  if (hasBias && type != result) {
    return fmt::format("the library adds no bias of type {} to a result of type {}", meshfuse::name(type),
                       meshfuse::name(result));
  }
  return refuseMatrixProduct(op, layouts);
}

CublasLtProduct::CublasLtProduct(const CublasLtHandle& handle, const Expr& op, const std::map<int64_t, Layout>& layouts)
    : handle_(handle),
      p_(matrixProductOf(op, layouts)),
      name_(fmt::format("{} {}x{}x{} of {}", op.opName(), p_.m, p_.n, p_.k, meshfuse::name(p_.operands))) {
  try {
    describe();
  } catch (...) {
    destroy();
    throw;
  }
}

CublasLtProduct::~CublasLtProduct() { destroy(); }

void CublasLtProduct::destroy() noexcept {
  const CublasLtLibrary& library = cublasLtLibrary();
  for (const cublaslt::MatrixLayout layout : {a_, b_, c_}) {
    if (layout != nullptr) {
      library.layoutDestroy(layout);
    }
  }
  if (product_ != nullptr) {
    library.productDestroy(product_);
  }
}

void CublasLtProduct::describe() {
  const Batch batch = batchOf(p_);
  const int64_t c = p_.m * p_.n;
  for (const int64_t i : indices(batch.aStarts)) {
    calls_.push_back({.a = batch.aStarts[i] * dataTypeSize(p_.operands),
                      .b = batch.bStarts[i] * dataTypeSize(p_.operands),
                      .c = i * batch.count * c * dataTypeSize(p_.result)});
  }
  const bool inDouble = computesInDouble(p_);
  succeed(cublasLtLibrary().productCreate(&product_,
                                          inDouble ? cublaslt::ComputeType::Double : cublaslt::ComputeType::Float,
                                          inDouble ? cublaslt::ElementType::Double : cublaslt::ElementType::Float),
          "cublasLtMatmulDescCreate", "{}", name_);
  using enum cublaslt::ProductAttribute;
  const auto transpose = [](bool t) { return t ? cublaslt::Transpose::Yes : cublaslt::Transpose::No; };
  set(product_, TransposeA, transpose(p_.b.transposed));
  set(product_, TransposeB, transpose(p_.a.transposed));
  if (p_.hasBias) {
    set(product_, Epilogue, cublaslt::Epilogue::Bias);
  }
  a_ = layoutOf({.type = p_.operands,
                 .rows = p_.m,
                 .columns = p_.k,
                 .transposed = p_.a.transposed,
                 .leading = p_.a.leading,
                 .count = batch.count,
                 .stride = batch.aStride});
  b_ = layoutOf({.type = p_.operands,
                 .rows = p_.k,
                 .columns = p_.n,
                 .transposed = p_.b.transposed,
                 .leading = p_.b.leading,
                 .count = batch.count,
                 .stride = batch.bStride});
  c_ = layoutOf({.type = p_.result, .rows = p_.m, .columns = p_.n, .leading = p_.n, .count = batch.count, .stride = c});
  int64_t outBits = kOutAlignment;
  for (const Call& call : calls_) {
    outBits |= call.c;
  }
  takeAlgorithm({.a = alignmentOf(p_.a, batch.aStarts, p_.operands),
                 .b = alignmentOf(p_.b, batch.bStarts, p_.operands),
                 .c = greatestPower(outBits)});
}

void CublasLtProduct::takeAlgorithm(const ProductAlignments& alignments) {
  if (p_.hasBias) {  // the library looks at the alignment of the address only
    set(product_, cublaslt::ProductAttribute::BiasPointer, p_.biasAlignment);
  }
  problem_ = problemOf(alignments);
  const ProductAlgorithm algorithm = handle_.algorithms().get(
      problem_, [this](const ProductAlgorithm& kept) { return serves(kept); },
      [&] { return chooseAlgorithm(alignments); });
  algorithm_ = algorithm.algorithm;
  workspaceBytes_ = algorithm.workspaceBytes;
}

// All that the choice depends on: what describe() tells the library, and the preferences.
std::string CublasLtProduct::problemOf(const ProductAlignments& alignments) const {
  const Batch batch = batchOf(p_);
  const auto operand = [](const MatrixProduct::Operand& o, int64_t stride) {
    return fmt::format("{} {} {}", o.transposed ? "t" : "n", o.leading, stride);
  };
  return fmt::format("{} {} {}x{}x{} a {} b {} batch {} bias {} {} aligned {} {} {} workspace {} reductions {}",
                     meshfuse::name(p_.operands), meshfuse::name(p_.result), p_.m, p_.n, p_.k,
                     operand(p_.a, batch.aStride), operand(p_.b, batch.bStride), batch.count, p_.hasBias,
                     p_.hasBias ? p_.biasAlignment : 0, alignments.a, alignments.b, alignments.c,
                     handle_.mostWorkspaceBytes(), static_cast<uint32_t>(kReductions));
}

// The library knows the algorithm, for this product and on this device.
bool CublasLtProduct::serves(const ProductAlgorithm& algorithm) const {
  cublaslt::HeuristicResult result = {};
  return cublasLtLibrary().checkAlgorithm(handle_.get(), product_, b_, a_, c_, c_, &algorithm.algorithm, &result) ==
             cublaslt::Status::Success &&
         static_cast<int64_t>(result.workspaceBytes) == algorithm.workspaceBytes &&
         algorithm.workspaceBytes <= handle_.mostWorkspaceBytes();
}

ProductAlgorithm CublasLtProduct::chooseAlgorithm(const ProductAlignments& alignments) const {
  const CublasLtLibrary& library = cublasLtLibrary();
  cublaslt::Preference preference = nullptr;
  succeed(library.preferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", "{}", name_);
  const std::unique_ptr<cublaslt::PreferenceObject, decltype(library.preferenceDestroy)> owner(
      preference, library.preferenceDestroy);
  using enum cublaslt::PreferenceAttribute;
  set(preference, MostWorkspaceBytes, static_cast<uint64_t>(handle_.mostWorkspaceBytes()));
  set(preference, ReductionSchemes, kReductions);
  set(preference, AlignmentOfA, alignments.b);
  set(preference, AlignmentOfB, alignments.a);
  set(preference, AlignmentOfC, alignments.c);
  set(preference, AlignmentOfD, alignments.c);
  cublaslt::HeuristicResult result = {};
  int found = 0;
  succeed(library.chooseAlgorithm(handle_.get(), product_, b_, a_, c_, c_, preference, 1, &result, &found),
          "cublasLtMatmulAlgoGetHeuristic", "{}", name_);
  deviceCheck(found == 1 && result.state == cublaslt::Status::Success, "[cuda] cuBLASLt {} has no algorithm for {}",
              library.version(), name_);
  return {result.algorithm, static_cast<int64_t>(result.workspaceBytes)};
}

int64_t CublasLtProduct::plannedWorkspaceBytes(int64_t bytes) {
  return bytes == 0 ? 0 : bytes + int64_t{kWorkspaceAlignment} - kOutAlignment;
}

int64_t CublasLtProduct::workspaceBytes() const { return plannedWorkspaceBytes(workspaceBytes_); }

void CublasLtProduct::run(std::span<void* const> operands, void* out, void* workspace, cuda::Stream stream) const {
  std::unique_lock<std::mutex> lock;
  if (p_.hasBias) {
    lock = std::unique_lock(biasMutex_);
    set(product_, cublaslt::ProductAttribute::BiasPointer, operands[2]);
  }
  const bool inDouble = computesInDouble(p_);
  const Scale one = inDouble ? Scale{.d = 1} : Scale{.f = 1};
  const Scale zero = inDouble ? Scale{.d = 0} : Scale{.f = 0};
  const auto start = std::bit_cast<uintptr_t>(workspace);
  workspace = static_cast<char*>(workspace) + (-start & (kWorkspaceAlignment - 1));
  for (const Call& call : calls_) {
    char* const c = static_cast<char*>(out) + call.c;
    succeed(cublasLtLibrary().multiply(handle_.get(), product_, &one, static_cast<const char*>(operands[1]) + call.b,
                                       b_, static_cast<const char*>(operands[0]) + call.a, a_, &zero, c, c_, c, c_,
                                       &algorithm_, workspaceBytes_ > 0 ? workspace : nullptr, workspaceBytes_, stream),
            "cublasLtMatmul", "{}", name_);
  }
}

}  // namespace meshfuse
