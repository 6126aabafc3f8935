//@ types
// Storage of 16-bit floats, and 32-bit words that hold one of them or two.
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
//@ access types
// How a global access treats caches. Loads: kReadOnly, the launch never writes the data; kOnce, nor reads it twice (on an H200 both are best
// cached alike); kShared, other blocks or earlier statements may have written it. Stores: kOnce, written once; kKeep.
enum Access { kReadOnly, kOnce, kShared, kKeep };
