// Keeps the directory of a disk cache within its limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/rounding.h"

namespace meshfuse {

// The bytes that a file of `bytes` takes in whole blocks, as most file systems have them.
[[nodiscard]] constexpr int64_t blockBytes(int64_t bytes) { return roundUp(bytes, 4096); }

// Deletes the entries of `directory` that were not used for longest, by the times of their files, until 7/8 of `mostBytes` or less are left;
// nothing if they have at most `mostBytes`. Files count with the blocks that they take. Also deletes what writers that died have left for an
// hour. Other processes may read and write the directory meanwhile: a reader has opened its entry or misses it. Does nothing while another
// process sweeps the directory.
void sweepEntries(const std::string& directory, int64_t mostBytes);
// For a disk that is full: deletes the entries that were not used for longest, until the deleted bytes are at least an eighth of the bytes
// of all entries, and at least `bytes` minus freeBytes(). Deletes nothing if more bytes are free than `bytes` need, or if all entries would
// not suffice. Waits while another process sweeps the directory, at most about a second, and asks `freeBytes` after that: the other process
// may have made room.
void freeEntries(const std::string& directory, int64_t bytes, const std::function<int64_t()>& freeBytes);
// The bytes that this user may still write on the disk of `directory`; 0 if the disk can have no more files, or if its free bytes are not
// known.
[[nodiscard]] int64_t freeBytesOf(const std::string& directory);

// Marks an entry, open as `descriptor`, as used now, unless it was within the last minute. `seconds`: the time of its file.
void noteUse(int descriptor, int64_t seconds);

}  // namespace meshfuse
