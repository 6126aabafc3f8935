#include "device/cpu/onednn/native_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <dnnl.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "base/error.h"
#include "base/rounding.h"

namespace meshfuse {

namespace {

using Type = dnnl::memory::data_type;

Type typeOf(DataType type) { return type == DataType::Float ? Type::f32 : Type::bf16; }

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

constexpr int64_t kPanel = 64;    // columns of B that are packed together
constexpr int64_t kStep = 32;     // elements of k of an instruction
constexpr int64_t kRowPart = 64;  // rows of A that are packed together

// Columns of B, packed: all pairs of k of 64 columns side by side, one panel of columns after the other
dnnl::memory::desc panels(int64_t k, int64_t columns) {
  return {{k, columns}, Type::bf16, dnnl::memory::format_tag::BA16a64b2a};
}

// A matrix as it lies in memory
dnnl::memory::desc matrix(int64_t rows, int64_t columns, const MatrixProduct::Operand& o) {
  return {
      {rows, columns}, Type::bf16, o.transposed ? dnnl::memory::dims{1, o.leading} : dnnl::memory::dims{o.leading, 1}};
}

template <class T>
T* at(T* base, int64_t elements, DataType type) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(base) + elements * dataTypeSize(type);
}

}  // namespace

struct NativeProduct::Call {
  // `k` is more than that of p if A is packed.
  Call(const MatrixProduct& p, int64_t rows, int64_t columns, int64_t k, bool packsA, bool packsB)
      : a(packsA ? dnnl::memory::desc({rows, k}, Type::bf16, {k, 1}) : matrix(rows, k, p.a)),
        b(packsB ? panels(k, columns) : matrix(k, columns, p.b)),
        result({rows, columns}, typeOf(p.result), {p.n, 1}) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.hasBias) {
      bias = dnnl::memory::desc({1, columns}, Type::bf16, {columns, 1});
    }
    using Product = dnnl::matmul;
    const Product::primitive_desc made(bias ? Product::desc(a, b, *bias, result) : Product::desc(a, b, result),
                                       attributes, engine());
    scratch = made.scratchpad_desc();
    // the library's reference takes a thousand times as long as a product of Float
    isFast = !std::string_view(made.impl_info_str()).starts_with("ref");
    product = Product(made);
  }

  dnnl::memory::desc a, b, result, scratch;
  std::optional<dnnl::memory::desc> bias;
  bool isFast = false;
  dnnl::primitive product;
};

struct NativeProduct::Panel {
  Panel(const MatrixProduct& p, int64_t columns) : from(matrix(p.k, columns, p.b)), to(panels(p.k, columns)) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc made(engine(), from, engine(), to, attributes);
    needsScratch = made.scratchpad_desc().get_size() > 0;
    pack = dnnl::reorder(made);
  }

  dnnl::memory::desc from, to;
  bool needsScratch = false;
  dnnl::reorder pack;
};

NativeProduct::Copies::Copies(const std::vector<int64_t>& ofProducts) {
  std::map<int64_t, int64_t> copies;  // by offset
  for (const int64_t offset : ofProducts) {
    const auto [copy, isNew] = copies.try_emplace(offset, std::ssize(copies));
    if (isNew) {
      offsets.push_back(offset);
    }
    ofProduct.push_back(copy->second);
  }
}

NativeProduct::NativeProduct(const MatrixProduct& p, Packing packing)
    : p_(p), aCopies_(p.offsets(p.a)), bCopies_(p.offsets(p.b)) {
  if (packing == Packing::InEachCall || p.m < ResultBlocks::kManyRows || p.a.transposed) {
    return;
  }
  // The library's fast products take rows without gaps; of a B whose columns lie in memory they pack as fast as its reorder does.
  const bool isRagged = p.k % kStep != 0;
  packsA_ = isRagged || p.a.leading != p.k;
  packsB_ = isRagged || !p.b.transposed || p.b.leading != p.k;
}

NativeProduct::~NativeProduct() = default;

bool NativeProduct::plan(const ResultBlocks& blocks) {
  for (int64_t i = 0; i < blocks.count(); i++) {
    const ResultBlock block = blocks.at(i);
    if (packsB_ && block.column % kPanel != 0) {
      return false;  // a call reads whole panels
    }
    std::unique_ptr<Call>& call = calls_[{block.rows, block.columns}];
    if (call == nullptr) {
      call = std::make_unique<Call>(p_, block.rows, block.columns, depth(), packsA_, packsB_);
      if (!call->isFast) {
        return false;
      }
      scratchBytes_ = std::max<int64_t>(scratchBytes_, call->scratch.get_size());
    }
  }
  for (const int64_t columns : {std::min(kPanel, p_.n), p_.n % kPanel}) {
    if (packsB_ && columns > 0) {
      const Panel& panel = *(panels_[columns] = std::make_unique<Panel>(p_, columns));
      if (panel.needsScratch) {
        return false;
      }
    }
  }
  return true;
}

std::shared_ptr<const NativeProduct> NativeProduct::make(const MatrixProduct& p, const ResultBlocks& blocks) {
  constexpr int64_t kFew =
      8192;  // multiplications: a call of a primitive takes as long as widening and a product of Float
  if (p.operands != DataType::BFloat16 || p.m * p.n * p.k <= kFew) {
    return nullptr;
  }
  for (const Packing packing : {Packing::Once, Packing::InEachCall}) {
    std::shared_ptr<NativeProduct> made(new NativeProduct(p, packing));
    try {
      if (made->plan(blocks)) {
        return made;
      }
    } catch (
        const dnnl::error&) {  // of this processor, or with panels of this width, the library takes no such product
    }
  }
  return nullptr;
}

int64_t NativeProduct::depth() const { return packsA_ ? roundUp(p_.k, kStep) : p_.k; }

int64_t NativeProduct::packedABytes() const { return packsA_ ? aCopies_.count() * p_.m * depth() * 2 : 0; }

int64_t NativeProduct::packedBBytes() const {
  return packsB_ ? bCopies_.count() * roundUp(p_.n, kPanel) * roundUp(p_.k, kStep) * 2 : 0;
}

int64_t NativeProduct::packedRowParts() const { return packsA_ ? aCopies_.count() * divideUp(p_.m, kRowPart) : 0; }
int64_t NativeProduct::packedPanels() const { return packsB_ ? bCopies_.count() * divideUp(p_.n, kPanel) : 0; }

void NativeProduct::pack(int64_t part, const void* a, const void* b, void* packed) const {
  if (part < packedPanels()) {
    const int64_t panels = divideUp(p_.n, kPanel);
    packPanel(part / panels, part % panels, b, packed);
  } else {
    const int64_t rowParts = divideUp(p_.m, kRowPart);
    part -= packedPanels();
    packRows(part / rowParts, part % rowParts, a, at(packed, packedBBytes() / 2, DataType::BFloat16));
  }
}

void NativeProduct::packPanel(int64_t copy, int64_t panel, const void* b, void* to) const {
  const int64_t column = panel * kPanel;
  const Panel& p = *panels_.at(std::min(kPanel, p_.n - column));
  const int64_t at64 = (copy * roundUp(p_.n, kPanel) + column) * roundUp(p_.k, kStep);
  dnnl::memory from(p.from, engine(),
                    const_cast<void*>(at(b, bCopies_.offsets[copy] + p_.b.offsetOf(0, column), p_.operands)));
  dnnl::memory packed(p.to, engine(), at(to, at64, p_.operands));
  try {
    dnnl::stream stream(engine());
    p.pack.execute(stream, from, packed);
  } catch (const dnnl::error& error) {
    throwDeviceError(fmt::format("[contraction] the library did not pack {}x{} elements of BFloat16: {}", p_.k,
                                 std::min(kPanel, p_.n - column), error.message));
  }
}

void NativeProduct::packRows(int64_t copy, int64_t part, const void* a, void* to) const {
  for (int64_t row = part * kRowPart; row < std::min(p_.m, (part + 1) * kRowPart); row++) {
    const auto* from = static_cast<const uint16_t*>(a) + aCopies_.offsets[copy] + p_.a.offsetOf(row, 0);
    auto* packed = static_cast<uint16_t*>(to) + (copy * p_.m + row) * depth();
    std::fill(std::copy_n(from, p_.k, packed), packed + depth(), uint16_t{0});
  }
}

void NativeProduct::run(const ResultBlock& block, const Operands& operands, void* result, void* scratch) const {
  const Call& call = *calls_.at({block.rows, block.columns});
  const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine(), const_cast<void*>(data));
  };
  const void* a = packsA_ ? at(operands.packed, packedBBytes() / 2, p_.operands) : operands.a;
  const void* b = packsB_ ? operands.packed : operands.b;
  const int64_t aCopy = aCopies_.ofProduct[block.product];
  const int64_t bCopy = bCopies_.ofProduct[block.product];
  const int64_t aAt =
      packsA_ ? (aCopy * p_.m + block.row) * depth() : aCopies_.offsets[aCopy] + p_.a.offsetOf(block.row, 0);
  const int64_t bAt = packsB_ ? (bCopy * roundUp(p_.n, kPanel) + block.column) * roundUp(p_.k, kStep)
                              : bCopies_.offsets[bCopy] + p_.b.offsetOf(0, block.column);
  const int64_t resultAt = (block.product * p_.m + block.row) * p_.n + block.column;
  try {
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, memory(call.a, at(a, aAt, p_.operands))},
        {DNNL_ARG_WEIGHTS, memory(call.b, at(b, bAt, p_.operands))},
        {DNNL_ARG_DST, memory(call.result, at(result, resultAt, p_.result))},
        {DNNL_ARG_SCRATCHPAD, memory(call.scratch, scratch)}};
    if (call.bias) {
      arguments.insert({DNNL_ARG_BIAS, memory(*call.bias, at(operands.bias, block.column, p_.operands))});
    }
    dnnl::stream stream(engine());
    call.product.execute(stream, arguments);
  } catch (const dnnl::error& error) {
    throwDeviceError(fmt::format("[contraction] the library's product of BFloat16 {}x{}x{} failed: {}", block.rows,
                                 block.columns, p_.k, error.message));
  }
}

}  // namespace meshfuse
