//@ scan_lines load_one store_one shared_load shared_store thread_index block_index barrier
// Running totals of lines of T: element j of a line of z is the total of the elements 0 to j of that line of x. A block scans kLines lines,
// tile by tile; a thread scans kSegment neighbours of a line. The carry, the total before a segment, is combined with the totals of the
// segment's first elements, and the last of these results is the next carry. So a result depends on its position in the line only, not on
// kLines and kThreads, and sums of non-negative elements never decrease.
//
//   Lines    kCount lines of kExtent elements, kFromStep and kToStep apart; from(line), to(line): offsets of their first elements
//   Combine  Wide, the type of totals; first(), its identity; with(a, b); rounded<T>(total). Whether results may be combined so, or must be
//            totals of one element after the other, lest one leaves the range of Wide: standsIn(total), for each total in a segment,
//            refused(), a total that does not, and carries(carry).
//            isCertain(carry): if it holds for all carries of a tile, each of them could be combined with its total; it must not hold for a
//            carry that was combined with refused()
constexpr int kSegment = 16;
template <class T, class Lines, class Combine, int kLines, int kThreads>
__device__ __forceinline__ void scanLines(const T* x, T* z) {
  typedef typename Combine::Wide Wide;
  constexpr int kSegments = kThreads / kLines;  // of a line in a tile
  constexpr int kRows = kSegment * kSegments;
  constexpr int kBatch = kSegments < 16 ? kSegments : 16;  // totals that are read at a time
  static_assert(kThreads % kLines == 0 && kSegments % kBatch == 0, "whole segments and batches");
  constexpr int kTotals = ((kSegment + 1) * kThreads * (int)sizeof(T) + 15) / 16 * 16;  // offset of the totals
  constexpr int kCarries = kTotals + kThreads * (int)sizeof(Wide);
  // kLines elements more after each segment: threads of a warp use different banks
  const auto place = [](int row, int own) { return (row * kLines + own + row / kSegment * kLines) * (int)sizeof(T); };
  const auto of = [](int array, int segment, int own) { return array + (segment * kLines + own) * (int)sizeof(Wide); };
  const int thread = threadIndex(), own = thread % kLines, segment = thread / kLines;
  const i64 line = (i64)blockIndex() * kLines + own;
  const bool isLine = line < Lines::kCount;
  const T* const from = x + (isLine ? Lines::from(line) : 0);
  T* const to = z + (isLine ? Lines::to(line) : 0);
  Wide carry = Combine::first();
  for (i64 begin = 0; begin < Lines::kExtent; begin += kRows) {
    const i64 left = isLine ? Lines::kExtent - begin : 0;
    const int rows = left < kRows ? (int)left : kRows;
    for (int row = segment; row < rows; row += kSegments)
      sharedStore<T>(place(row, own), loadOne<kShared>(from + (begin + row) * Lines::kFromStep, 1), 2);
    barrier(3);
    const int first = segment * kSegment;
    const int end = first + kSegment < rows ? first + kSegment : rows;
    Wide total = Combine::first();
    bool stands = true;
    for (int row = first; row < end; ++row) {
      total = Combine::with(total, (Wide)sharedLoad<T>(place(row, own), 4));
      stands = stands && Combine::standsIn(total);
    }
    sharedStore<Wide>(of(kTotals, segment, own), stands ? total : Combine::refused(), 5);
    barrier(6);
    if (thread < kLines) {
      // without branches, as if all totals may be combined
      const Wide before = carry;
      bool certain = Combine::isCertain(carry);
      for (int s = 0; s * kSegment < rows; s += kBatch) {
        Wide ofSegment[kBatch];
        for (int j = 0; j < kBatch; ++j) ofSegment[j] = sharedLoad<Wide>(of(kTotals, s + j, thread), 7);
        for (int j = 0; j < kBatch; ++j) {
          sharedStore<Wide>(of(kCarries, s + j, thread), carry, 8);
          carry = Combine::with(carry, ofSegment[j]);
          certain = certain & Combine::isCertain(carry);
        }
      }
      if (!certain) {
        carry = before;
        for (int s = 0; s * kSegment < rows; ++s) {
          const Wide ofSegment = sharedLoad<Wide>(of(kTotals, s, thread), 9);
          sharedStore<Wide>(of(kCarries, s, thread), carry, 10);
          if (Combine::standsIn(ofSegment) && Combine::carries(carry))
            carry = Combine::with(carry, ofSegment);
          else
            for (int row = s * kSegment; row < (s + 1) * kSegment && row < rows; ++row)
              carry = Combine::with(carry, (Wide)sharedLoad<T>(place(row, thread), 11));
        }
      }
    }
    barrier(12);
    const Wide before = first < rows ? sharedLoad<Wide>(of(kCarries, segment, own), 13) : Combine::first();
    const bool isWhole = stands && Combine::carries(before);
    total = isWhole ? Combine::first() : before;
    for (int row = first; row < end; row += 4) {
      T element[4];
      for (int j = 0; j < 4; ++j)
        if (row + j < end) element[j] = sharedLoad<T>(place(row + j, own), 14);
      for (int j = 0; j < 4; ++j)
        if (row + j < end) {
          total = Combine::with(total, (Wide)element[j]);
          const Wide result = isWhole ? Combine::with(before, total) : total;
          sharedStore<T>(place(row + j, own), Combine::template rounded<T>(result), 15);
        }
    }
    barrier(16);
    // each thread frees the places that it fills with the next tile
    for (int row = segment; row < rows; row += kSegments)
      storeOne<kKeep>(to + (begin + row) * Lines::kToStep, sharedLoad<T>(place(row, own), 17), 18);
  }
}
