#include "multidevice/transport/stream_copy.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace meshfuse {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Reads several pages at the same time: a processor prefetches within one page only, and one page does not saturate it.
constexpr size_t kPages = 4;
// Block size of copies that go backward.
constexpr size_t kPiece = 4 * kPage;
constexpr size_t kStreamedPiece = 16 * kPages * kPage;

constexpr size_t kWideStep = 4 * kLine;

inline void streamLine(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* line = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(line, a);
  _mm_stream_si128(line + 1, b);
  _mm_stream_si128(line + 2, c);
  _mm_stream_si128(line + 3, d);
}

// A processor with fast short string moves overwrites cache lines in a long move without reading their old content. It keeps the written
// lines in its caches if they fit.
bool hasFastStringMoves() {
  constexpr uint32_t kFastShortRepMov = uint32_t{1} << 4;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kFastShortRepMov) != 0;
}

// For far blocks, a processor of AMD is faster with streaming stores of whole lines than with string moves, and it reads across pages.
bool hasWideStreams() { return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f"); }

// Whole steps, to the beginning of a line.
__attribute__((target("avx512f"))) void streamWide(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kWideStep) {
    for (size_t line = at; line < at + kWideStep; line += kLine) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + line), _mm512_loadu_si512(from + line));
    }
  }
  _mm_sfence();  // before other ranks learn that the copy is complete
}

size_t bytesToLine(const std::byte* to, size_t bytes) {
  return std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
}

void moveString(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = bytesToLine(to, bytes);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

void copyWide(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = bytesToLine(to, bytes);
  const size_t whole = (bytes - head) / kWideStep * kWideStep;
  std::memcpy(to, from, head);
  streamWide(to + head, from + head, whole);
  std::memcpy(to + head + whole, from + head + whole, bytes - head - whole);
}

}  // namespace

void copyStreaming(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = bytesToLine(to, bytes);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kPages * kPage <= bytes; at += kPages * kPage) {
    for (size_t line = at; line < at + kPage; line += kLine) {
      for (size_t page = 0; page < kPages; ++page) {
        streamLine(to + line + page * kPage, from + line + page * kPage);
      }
    }
  }
  for (; at + kLine <= bytes; at += kLine) {
    streamLine(to + at, from + at);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // before other ranks learn that the copy is complete
}

void copyOfBlock(std::byte* to, const std::byte* from, size_t bytes, size_t whole, CopyOrder order) {
  if (to == from || bytes == 0) {
    return;
  }
  static const bool movesStrings = hasFastStringMoves();
  static const bool streamsWide = hasWideStreams();
  const bool streams = whole >= kStreamedFrom;
  auto copy = [&](size_t at, size_t length) {
    if (!streams) {
      std::memcpy(to + at, from + at, length);
    } else if (streamsWide && whole >= kFarFrom) {
      copyWide(to + at, from + at, length);
    } else if (movesStrings) {
      moveString(to + at, from + at, length);
    } else {
      copyStreaming(to + at, from + at, length);
    }
  };
  // Copies pieces from the last to the first, each forward, because processors prefetch forward.
  const size_t piece = order == CopyOrder::Forward ? bytes : streams ? kStreamedPiece : kPiece;
  for (size_t end = bytes; end > 0;) {
    const size_t length = std::min(piece, end);
    end -= length;
    copy(end, length);
  }
}

}  // namespace meshfuse
