//@ scan_lines load_one store_one shared_load shared_store thread_index block_index barrier
// Running totals of lines of T: element j of a line of z is the total of the elements 0 to j of that line of x. A block scans kLines lines,
// tile by tile; a thread scans kSegment neighbours of a line. The carry, the total before a segment, is combined with the totals of the
// segment's first elements, and the last of these results is the next carry. So a result depends on its position in the line only, not on
// kLines and kThreads, and sums of non-negative elements never decrease.
//
//   Lines    kCount lines of kExtent elements, kFromStep and kToStep apart; from(line), to(line): offsets of their first elements
//   Combine  Wide, the type of totals; first(), its identity; with(a, b); rounded<T>(total). Whether results may be combined so, or must be
//            totals of one element after the other, lest one leaves the range of Wide: standsIn(total), for each total in a segment,
//            refused(), a total that does not, and carries(carry)
constexpr int kSegment = 16;
template <class T, class Lines, class Combine, int kLines, int kThreads>
__device__ __forceinline__ void scanLines(const T* x, T* z) {
  typedef typename Combine::Wide Wide;
  constexpr int kSegments = kThreads / kLines;  // of a line in a tile
  constexpr int kRows = kSegment * kSegments;
  constexpr int kTotals = (17 * kThreads * (int)sizeof(T) + 15) / 16 * 16;  // offset of the totals
  // kLines elements more after each segment: threads of a warp use different banks
  const auto place = [](int row, int own) { return (row * kLines + own + row / kSegment * kLines) * (int)sizeof(T); };
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
    sharedStore<Wide>(kTotals + thread * (int)sizeof(Wide), stands ? total : Combine::refused(), 5);
    barrier(6);
    if (thread < kLines)
      for (int s = 0; s < kSegments && s * kSegment < rows; ++s) {
        const int at = kTotals + (s * kLines + thread) * (int)sizeof(Wide);
        const Wide ofSegment = sharedLoad<Wide>(at, 7);
        sharedStore<Wide>(at, carry, 8);
        if (Combine::standsIn(ofSegment) && Combine::carries(carry))
          carry = Combine::with(carry, ofSegment);
        else
          for (int row = s * kSegment; row < (s + 1) * kSegment && row < rows; ++row)
            carry = Combine::with(carry, (Wide)sharedLoad<T>(place(row, thread), 9));
      }
    barrier(10);
    const Wide before = sharedLoad<Wide>(kTotals + thread * (int)sizeof(Wide), 11);
    const bool isWhole = stands && Combine::carries(before);
    total = isWhole ? Combine::first() : before;
    for (int row = first; row < end; ++row) {
      total = Combine::with(total, (Wide)sharedLoad<T>(place(row, own), 12));
      sharedStore<T>(place(row, own), Combine::template rounded<T>(isWhole ? Combine::with(before, total) : total), 13);
    }
    barrier(14);
    // each thread frees the places that it fills with the next tile
    for (int row = segment; row < rows; row += kSegments)
      storeOne<kKeep>(to + (begin + row) * Lines::kToStep, sharedLoad<T>(place(row, own), 15), 16);
  }
}
