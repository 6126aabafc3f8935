#include "device/cpu/onednn/native_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <dnnl.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "base/error.h"

namespace meshfuse {

namespace {

using Type = dnnl::memory::data_type;

Type typeOf(DataType type) { return type == DataType::Float ? Type::f32 : Type::bf16; }

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
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
  Call(const MatrixProduct& p, int64_t rows, int64_t columns)
      : a(matrix(rows, p.k, p.a)), b(matrix(p.k, columns, p.b)), result({rows, columns}, typeOf(p.result), {p.n, 1}) {
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

NativeProduct::NativeProduct(const MatrixProduct& p) : p_(p), aOffsets_(p.offsets(p.a)), bOffsets_(p.offsets(p.b)) {}

NativeProduct::~NativeProduct() = default;

std::shared_ptr<const NativeProduct> NativeProduct::make(const MatrixProduct& p, const ResultBlocks& blocks) {
  constexpr int64_t kFew =
      8192;  // multiplications: a call of a primitive takes as long as widening and a product of Float
  if (p.operands != DataType::BFloat16 || p.m * p.n * p.k <= kFew) {
    return nullptr;
  }
  std::shared_ptr<NativeProduct> made(new NativeProduct(p));
  try {
    for (int64_t i = 0; i < blocks.count(); i++) {
      const ResultBlock block = blocks.at(i);
      std::unique_ptr<Call>& call = made->calls_[{block.rows, block.columns}];
      if (call == nullptr) {
        call = std::make_unique<Call>(p, block.rows, block.columns);
        if (!call->isFast) {
          return nullptr;
        }
        made->scratchBytes_ = std::max<int64_t>(made->scratchBytes_, call->scratch.get_size());
      }
    }
  } catch (const dnnl::error&) {
    return nullptr;  // of this processor the library takes no such product
  }
  return made;
}

void NativeProduct::run(const ResultBlock& block, const void* a, const void* b, const void* bias, void* result,
                        void* scratch) const {
  const Call& call = *calls_.at({block.rows, block.columns});
  const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine(), const_cast<void*>(data));
  };
  const int64_t aAt = aOffsets_[block.product] + p_.a.offsetOf(block.row, 0);
  const int64_t bAt = bOffsets_[block.product] + p_.b.offsetOf(0, block.column);
  const int64_t resultAt = (block.product * p_.m + block.row) * p_.n + block.column;
  try {
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, memory(call.a, at(a, aAt, p_.operands))},
        {DNNL_ARG_WEIGHTS, memory(call.b, at(b, bAt, p_.operands))},
        {DNNL_ARG_DST, memory(call.result, at(result, resultAt, p_.result))},
        {DNNL_ARG_SCRATCHPAD, memory(call.scratch, scratch)}};
    if (call.bias) {
      arguments.insert({DNNL_ARG_BIAS, memory(*call.bias, at(bias, block.column, p_.operands))});
    }
    dnnl::stream stream(engine());
    call.product.execute(stream, arguments);
  } catch (const dnnl::error& error) {
    throwDeviceError(fmt::format("[contraction] the library's product of BFloat16 {}x{}x{} failed: {}", block.rows,
                                 block.columns, p_.k, error.message));
  }
}

}  // namespace meshfuse
