//@ sort_keys types
// An element as an unsigned number that orders as it does: NaN after all others, both zeros the same.
__device__ __forceinline__ u32 orderOf(float v) {
  const u32 bits = __float_as_uint(v + 0.f);  // -0 becomes 0
  return v != v ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ u64 orderOf(double v) {
  const double w = v + 0.0;
  const u64 bits = (u64)(u32)__double2hiint(w) << 32 | (u32)__double2loint(w);
  return v != v ? ~0ull : bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ u64 orderOf(i64 v) { return (u64)v ^ 1ull << 63; }
__device__ __forceinline__ u32 orderOf(int v) { return (u32)v ^ 0x80000000u; }
__device__ __forceinline__ u32 orderOf(short v) { return orderOf((int)v); }
__device__ __forceinline__ u32 orderOf(signed char v) { return orderOf((int)v); }
__device__ __forceinline__ u32 orderOf(u16 v) { return v; }
__device__ __forceinline__ u32 orderOf(unsigned char v) { return v; }
//@ sort_items types load_one store_one
// A key with the place of its element in the line, which decides between equal keys: no two items of a line are equal, so every order of
// work gives one result. In memory an item is kWords words. Packed: keys and places of 32 bits.
struct Packed {
  static constexpr int kWords = 1;
  u64 bits;
  static __device__ __forceinline__ Packed of(u64 key, i64 place) { return {key << 32 | (u64)place}; }
  __device__ __forceinline__ u64 key() const { return bits >> 32; }
  __device__ __forceinline__ i64 place() const { return (i64)(bits & 0xffffffffull); }
  __device__ __forceinline__ bool isBefore(Packed other) const { return bits < other.bits; }
  static __device__ __forceinline__ Packed load(const u64* p, i64 i, int site) {
    return {loadOne<kShared>(p + i, site)};
  }
  __device__ __forceinline__ void store(u64* p, i64 i, int site) const { storeOne<kKeep>(p + i, bits, site); }
};
struct alignas(16) Placed {
  static constexpr int kWords = 2;
  u64 order, at;
  static __device__ __forceinline__ Placed of(u64 key, i64 place) { return {key, (u64)place}; }
  __device__ __forceinline__ u64 key() const { return order; }
  __device__ __forceinline__ i64 place() const { return (i64)at; }
  __device__ __forceinline__ bool isBefore(Placed other) const {
    return order < other.order || (order == other.order && at < other.at);
  }
  static __device__ __forceinline__ Placed load(const u64* p, i64 i, int site) {
    return {loadOne<kShared>(p + 2 * i, site), loadOne<kShared>(p + 2 * i + 1, site)};
  }
  __device__ __forceinline__ void store(u64* p, i64 i, int site) const {
    storeOne<kKeep>(p + 2 * i, order, site);
    storeOne<kKeep>(p + 2 * i + 1, at, site);
  }
};
//@ sort_runs sort_items shared_load shared_store thread_index block_index barrier
// Orders of lines. A run is a part of a line whose items are in order; of each, only the first kWanted are kept.
//
//   Lines   kCount lines of kExtent items, kWanted of them wanted; kLargest, a key that no other exceeds; item(x, line, place)
//   Result  put(z, line, run, j, item, span): keeps item j of a run of `span` items of the line
template <class Item, class Lines>
struct ToRuns {  // one run after the other, those of a line together
  static __device__ __forceinline__ void put(u64* z, i64 line, i64 run, i64 j, Item item, i64 span) {
    const i64 kept = span < Lines::kWanted ? span : Lines::kWanted, runs = (Lines::kExtent + span - 1) / span;
    item.store(z, (line * runs + run) * kept + j, 9);
  }
};
template <class Item, class Lines>
struct ToPlaces {  // of a run that is the line: the places of its elements
  static __device__ __forceinline__ void put(i64* z, i64 line, i64, i64 j, Item item, i64) {
    storeOne<kKeep>(z + Lines::to(line) + j * Lines::kToStep, item.place(), 9);
  }
};
// A block sorts kChunk items of a line in shared memory, by a bitonic network.
template <class Item, class Lines, class Result, int kChunk, int kThreads, class X, class Z>
__device__ __forceinline__ void sortChunks(const X* x, Z* z) {
  constexpr i64 kChunks = (Lines::kExtent + kChunk - 1) / kChunk;  // of a line
  const i64 line = blockIndex() / kChunks, chunk = blockIndex() % kChunks;
  const i64 first = chunk * kChunk;
  const int thread = threadIndex();
  for (int i = thread; i < kChunk; i += kThreads) {
    // places after the line, with the largest key, stay after it
    const Item item = first + i < Lines::kExtent ? Lines::item(x, line, first + i) : Item::of(Lines::kLargest, first + i);
    sharedStore<Item>(i * (int)sizeof(Item), item, 1);
  }
  for (int size = 2; size <= kChunk; size *= 2)
    for (int apart = size / 2; apart > 0; apart /= 2) {
      barrier(2);
      for (int pair = thread; pair < kChunk / 2; pair += kThreads) {
        const int i = 2 * pair - (pair & (apart - 1));
        const int a = i * (int)sizeof(Item), b = (i + apart) * (int)sizeof(Item);
        const Item low = sharedLoad<Item>(a, 3), high = sharedLoad<Item>(b, 4);
        if (high.isBefore(low) == ((i & size) == 0)) {
          sharedStore<Item>(a, high, 5);
          sharedStore<Item>(b, low, 6);
        }
      }
    }
  barrier(7);
  const i64 left = Lines::kExtent - first;
  for (int i = thread; i < kChunk && i < left && i < Lines::kWanted; i += kThreads)
    Result::put(z, line, chunk, i, sharedLoad<Item>(i * (int)sizeof(Item), 8), kChunk);
}
// Merges the runs 2 r and 2 r + 1 of `span` items of the line into run r, for all r; a thread finds the place of one item: its place in its
// run plus the number of smaller items in the other one.
template <class Item, class Lines, class Result, int kThreads, class Z>
__device__ __forceinline__ void mergeRuns(const u64* x, Z* z, i64 span) {
  const i64 kept = span < Lines::kWanted ? span : Lines::kWanted;  // of a run
  const i64 runs = (Lines::kExtent + span - 1) / span;             // of a line
  const i64 number = (i64)blockIndex() * kThreads + threadIndex();
  const i64 line = number / (runs * kept), run = number / kept % runs, j = number % kept;
  const auto lengthOf = [&](i64 r) {
    const i64 left = Lines::kExtent - r * span;
    return left < 0 ? 0 : left < kept ? left : kept;
  };
  if (line >= Lines::kCount || j >= lengthOf(run)) return;
  const u64* const own = x + (line * runs + run) * kept * Item::kWords;
  const i64 length = lengthOf(run ^ 1);
  const u64* const other = x + (line * runs + (run ^ 1)) * kept * Item::kWords;
  const Item item = Item::load(own, j, 1);
  i64 low = 0, high = length;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (Item::load(other, middle, 2).isBefore(item))
      low = middle + 1;
    else
      high = middle;
  }
  if (j + low < Lines::kWanted) Result::put(z, line, run / 2, j + low, item, 2 * span);
}
