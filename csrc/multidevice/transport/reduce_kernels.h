// The reduction loops, compiled once for each instruction set: a .cpp file states the target and includes this.
//
// The loops use 64-byte vectors of the compiler, so that the speed does not depend on automatic vectorization; the compiler splits the
// vectors for narrower registers. Everything is in an unnamed namespace: code of one target must not be
// merged with that of another by the linker. The including file must include reduce_target.h before its target.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "multidevice/transport/reduce_target.h"
#include "tensor/half.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are returned by inlined functions only

namespace meshfuse {

namespace {

constexpr int64_t kVectorBytes = 64;

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

// An element type whose accumulator is itself.
template <class T>
struct Plain {
  using Element = T;
  using Accumulator = Vector<T>;
  static constexpr int64_t kStep = kVectorBytes / static_cast<int64_t>(sizeof(T));

  [[gnu::always_inline]] static inline Accumulator load(const T* p) {
    Accumulator v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  [[gnu::always_inline]] static inline void store(T* p, const Accumulator& v) { std::memcpy(p, &v, sizeof(v)); }
};

// Bytes that are false when zero; loaded as 0 or 1.
struct Logical : Plain<uint8_t> {
  [[gnu::always_inline]] static inline Accumulator load(const uint8_t* p) {
    Accumulator v = Plain<uint8_t>::load(p);
    return (v != 0) & 1;
  }
};

struct BFloat16Bits {
  using Element = uint16_t;
  using Accumulator = Vector<float>;
  static constexpr int64_t kStep = kVectorBytes / 4;
  typedef uint16_t Packed __attribute__((vector_size(kVectorBytes / 2)));

  [[gnu::always_inline]] static inline Accumulator load(const uint16_t* p) {
    Packed packed;
    std::memcpy(&packed, p, sizeof(packed));
    return reinterpret_cast<Accumulator>(__builtin_convertvector(packed, Vector<uint32_t>) << 16);
  }
  [[gnu::always_inline]] static inline void store(uint16_t* p, const Accumulator& v) {
    Vector<uint32_t> bits = reinterpret_cast<Vector<uint32_t>>(v);
    Vector<uint32_t> rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    Vector<uint32_t> quiet = (bits >> 16) | 0x40u;
    Vector<uint32_t> result = (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
    Packed packed = __builtin_convertvector(result, Packed);
    std::memcpy(p, &packed, sizeof(packed));
  }
};

struct HalfBits {
  using Element = uint16_t;
  using Accumulator = Vector<float>;
  static constexpr int64_t kStep = kVectorBytes / 4;

#if defined(__AVX512F__)
  [[gnu::always_inline]] static inline Accumulator load(const uint16_t* p) {
    return reinterpret_cast<Accumulator>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
  [[gnu::always_inline]] static inline void store(uint16_t* p, const Accumulator& v) {
    __m256i packed = _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
  }
#elif defined(__F16C__)
  [[gnu::always_inline]] static inline Accumulator load(const uint16_t* p) {
    Accumulator v;
    for (int64_t i = 0; i < 2; ++i) {
      __m256 part = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i)));
      std::memcpy(reinterpret_cast<char*>(&v) + 32 * i, &part, sizeof(part));
    }
    return v;
  }
  [[gnu::always_inline]] static inline void store(uint16_t* p, const Accumulator& v) {
    for (int64_t i = 0; i < 2; ++i) {
      __m256 part;
      std::memcpy(&part, reinterpret_cast<const char*>(&v) + 32 * i, sizeof(part));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8 * i),
                       _mm256_cvtps_ph(part, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
  }
#else
  [[gnu::always_inline]] static inline Accumulator load(const uint16_t* p) {
    Accumulator v;
    for (int64_t i = 0; i < kStep; ++i) {
      v[i] = halfToFloat(p[i]);
    }
    return v;
  }
  [[gnu::always_inline]] static inline void store(uint16_t* p, const Accumulator& v) {
    for (int64_t i = 0; i < kStep; ++i) {
      p[i] = floatToHalf(v[i]);
    }
  }
#endif
};

template <ReduceOp kOp, class V>
[[gnu::always_inline]] inline V combine(const V& a, const V& b) {
  using T = std::remove_cvref_t<decltype(a[0])>;
  using Bits = Vector<BitsOf<T>>;
  if constexpr (kOp == ReduceOp::Sum || kOp == ReduceOp::Prod) {
    if constexpr (std::is_floating_point_v<T>) {
      return kOp == ReduceOp::Sum ? a + b : a * b;
    } else {  // unsigned: integers wrap
      Bits x = reinterpret_cast<Bits>(a);
      Bits y = reinterpret_cast<Bits>(b);
      return reinterpret_cast<V>(kOp == ReduceOp::Sum ? x + y : x * y);
    }
  } else if constexpr (kOp == ReduceOp::Min) {
    return ((a < b) | (a != a)) ? a : b;
  } else if constexpr (kOp == ReduceOp::Max) {
    return ((a > b) | (a != a)) ? a : b;
  } else {
    Bits x = reinterpret_cast<Bits>(a);
    Bits y = reinterpret_cast<Bits>(b);
    return reinterpret_cast<V>(kOp == ReduceOp::And ? x & y : kOp == ReduceOp::Or ? x | y : x ^ y);
  }
}

template <class Codec, ReduceOp kOp>
[[gnu::always_inline]] inline void reduceRange(const ReduceRange& range) {
  using Element = typename Codec::Element;
  constexpr int64_t kStep = Codec::kStep;
  auto* out = static_cast<Element*>(range.out);
  const auto* first = static_cast<const Element*>(range.inputs[0]);
  const size_t n = range.inputs.size();
  int64_t i = 0;
  if (n == 2) {  // the pointers stay in registers
    const auto* second = static_cast<const Element*>(range.inputs[1]);
    for (; i + 2 * kStep <= range.count; i += 2 * kStep) {
      auto x = combine<kOp>(Codec::load(first + i), Codec::load(second + i));
      auto y = combine<kOp>(Codec::load(first + i + kStep), Codec::load(second + i + kStep));
      Codec::store(out + i, x);
      Codec::store(out + i + kStep, y);
    }
  }
  for (; i + kStep <= range.count; i += kStep) {
    auto sum = Codec::load(first + i);
    for (size_t p = 1; p < n; ++p) {
      sum = combine<kOp>(sum, Codec::load(static_cast<const Element*>(range.inputs[p]) + i));
    }
    Codec::store(out + i, sum);
  }
  if (i < range.count) {  // the last elements go through a padded vector, so that they are computed like all others
    const size_t bytes = static_cast<size_t>(range.count - i) * sizeof(Element);
    Element padded[kStep] = {};
    std::memcpy(padded, first + i, bytes);
    auto sum = Codec::load(padded);
    for (size_t p = 1; p < n; ++p) {
      std::memcpy(padded, static_cast<const Element*>(range.inputs[p]) + i, bytes);
      sum = combine<kOp>(sum, Codec::load(padded));
    }
    Codec::store(padded, sum);
    std::memcpy(out + i, padded, bytes);
  }
}

// Bitwise operations depend on bits only, so one codec for each width is enough.
template <class Codec, class BitCodec>
[[gnu::always_inline]] inline void reduceWithOp(const ReduceRange& range, ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return reduceRange<Codec, ReduceOp::Sum>(range);
    case ReduceOp::Prod:
      return reduceRange<Codec, ReduceOp::Prod>(range);
    case ReduceOp::Min:
      return reduceRange<Codec, ReduceOp::Min>(range);
    case ReduceOp::Max:
      return reduceRange<Codec, ReduceOp::Max>(range);
    case ReduceOp::And:
      return reduceRange<BitCodec, ReduceOp::And>(range);
    case ReduceOp::Or:
      return reduceRange<BitCodec, ReduceOp::Or>(range);
    case ReduceOp::Xor:
      return reduceRange<BitCodec, ReduceOp::Xor>(range);
  }
}

[[gnu::always_inline]] inline void reduceLogical(const ReduceRange& range, ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Max:
    case ReduceOp::Or:
      return reduceRange<Logical, ReduceOp::Or>(range);
    case ReduceOp::Prod:
    case ReduceOp::Min:
    case ReduceOp::And:
      return reduceRange<Logical, ReduceOp::And>(range);
    case ReduceOp::Xor:
      return reduceRange<Logical, ReduceOp::Xor>(range);
  }
}

inline void reduceWithType(const ReduceRange& range, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::Double:
      return reduceWithOp<Plain<double>, Plain<uint64_t>>(range, op);
    case DataType::Float:
      return reduceWithOp<Plain<float>, Plain<uint32_t>>(range, op);
    case DataType::Half:
      return reduceWithOp<HalfBits, Plain<uint16_t>>(range, op);
    case DataType::BFloat16:
      return reduceWithOp<BFloat16Bits, Plain<uint16_t>>(range, op);
    case DataType::Int:
      return reduceWithOp<Plain<int64_t>, Plain<uint64_t>>(range, op);
    case DataType::Int32:
      return reduceWithOp<Plain<int32_t>, Plain<uint32_t>>(range, op);
    case DataType::Short:
      return reduceWithOp<Plain<int16_t>, Plain<uint16_t>>(range, op);
    case DataType::Char:
      return reduceWithOp<Plain<int8_t>, Plain<uint8_t>>(range, op);
    case DataType::UInt16:
      return reduceWithOp<Plain<uint16_t>, Plain<uint16_t>>(range, op);
    case DataType::Byte:
      return reduceWithOp<Plain<uint8_t>, Plain<uint8_t>>(range, op);
    case DataType::Bool:
      return reduceLogical(range, op);
  }
}

template <class Loads, class Stores>
[[gnu::always_inline]] inline void convertRange(const typename Loads::Element* from, typename Stores::Element* to,
                                                int64_t count) {
  constexpr int64_t kStep = Plain<float>::kStep;
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    Stores::store(to + i, Loads::load(from + i));
  }
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    typename Loads::Element padded[kStep] = {};
    typename Stores::Element converted[kStep];
    std::memcpy(padded, from + i, rest * sizeof(padded[0]));
    Stores::store(converted, Loads::load(padded));
    std::memcpy(to + i, converted, rest * sizeof(converted[0]));
  }
}

inline void widen(const void* from, DataType type, float* to, int64_t count) {
  const auto* bits = static_cast<const uint16_t*>(from);
  type == DataType::Half ? convertRange<HalfBits, Plain<float>>(bits, to, count)
                         : convertRange<BFloat16Bits, Plain<float>>(bits, to, count);
}

inline void narrow(const float* from, DataType type, void* to, int64_t count) {
  auto* bits = static_cast<uint16_t*>(to);
  type == DataType::Half ? convertRange<Plain<float>, HalfBits>(from, bits, count)
                         : convertRange<Plain<float>, BFloat16Bits>(from, bits, count);
}

}  // namespace

}  // namespace meshfuse
