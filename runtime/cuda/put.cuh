//@ put_lines latest load_one store_one thread_index block_index
// Writes by index: element j of a line of `source` goes to position index[j] of this line of the result; of several for one position, the
// last.
//
//   Lines   kInner lines are neighbours in the result, which has kCount positions, kExtent in a line; an index has kWrites elements,
//           kElements in a line; position(index, line, j); table(line, i), source(line, j): offsets. A position outside of the line is
//           skipped.
//
// Numbers the elements for each position: `last`, zeroed, gets 1 + the number of the last one.
template <class Lines, int kThreads, class I>
__device__ __forceinline__ void numberWrites(const I* index, u32* last) {
  const i64 number = (i64)blockIndex() * kThreads + threadIndex();
  if (number >= Lines::kWrites) return;
  const i64 inner = number % Lines::kInner, j = number / Lines::kInner % Lines::kElements;
  const i64 outer = number / Lines::kInner / Lines::kElements;
  const i64 position = Lines::position(index, outer * Lines::kInner + inner, j);
  if (position >= 0 && position < Lines::kExtent)
    latest(last + (outer * Lines::kExtent + position) * Lines::kInner + inner, (u32)j + 1, 2);
}
template <class Lines, int kThreads, class T>
__device__ __forceinline__ void putNumbered(const u32* last, const T* table, const T* source, T* z) {
  const i64 number = (i64)blockIndex() * kThreads + threadIndex();
  if (number >= Lines::kCount) return;
  const i64 inner = number % Lines::kInner, i = number / Lines::kInner % Lines::kExtent;
  const i64 line = number / Lines::kInner / Lines::kExtent * Lines::kInner + inner;
  const u32 j = loadOne<kShared>(last + number, 1);
  const T* const from = j == 0 ? table + Lines::table(line, i) : source + Lines::source(line, j - 1);
  storeOne<kKeep>(z + number, loadOne<kShared>(from, 2), 3);
}
//@ clear_words store_one thread_index block_index
template <int kThreads>
__device__ __forceinline__ void clearWords(u32* p, i64 count) {
  const i64 i = (i64)blockIndex() * kThreads + threadIndex();
  if (i < count) storeOne<kKeep>(p + i, 0u, 1);
}
//@ add_rows sort_items load_one store_one thread_index block_index
// Sums of values by the row that an index names.
//
// begins[r]: the number of the first one among `count` items in order whose key is at least r; for r from 0 to kRows.
template <class Item, class Rows, int kThreads>
__device__ __forceinline__ void findRows(const u64* items, i64* begins, i64 count) {
  const i64 row = (i64)blockIndex() * kThreads + threadIndex();
  if (row > Rows::kRows) return;
  i64 low = 0, high = count;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (Item::load(items, middle, 1).key() < (u64)row)
      low = middle + 1;
    else
      high = middle;
  }
  storeOne<kKeep>(begins + row, low, 2);
}
// A thread adds up an element of a row, in the order of the items: the table's first, then the values'.
//
//   Rows   kRows rows of kWidth elements; table(row, column), value(place, column): offsets; Sum, the type of sums; widened(element),
//          rounded(sum)
template <class Item, class Rows, int kThreads, class T>
__device__ __forceinline__ void addRows(const u64* items, const i64* begins, const T* table, const T* value, T* z) {
  const i64 number = (i64)blockIndex() * kThreads + threadIndex();
  const i64 row = number / Rows::kWidth, column = number % Rows::kWidth;
  if (row >= Rows::kRows) return;
  typename Rows::Sum sum = Rows::widened(loadOne<kShared>(table + Rows::table(row, column), 1));
  const i64 end = loadOne<kShared>(begins + row + 1, 2);
  for (i64 i = loadOne<kShared>(begins + row, 3); i < end; ++i) {
    const i64 place = Item::load(items, i, 4).place();
    sum += Rows::widened(loadOne<kShared>(value + Rows::value(place, column), 5));
  }
  storeOne<kKeep>(z + number, Rows::rounded(sum), 6);
}
