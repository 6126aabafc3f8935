// Keeps the directory of a disk cache within its limit.
#pragma once

#include <cstdint>
#include <string>

namespace meshfuse {

// Deletes the entries of `directory` that were not used for longest, by the times of their files, until 7/8 of `mostBytes` or less are left;
// nothing if they have at most `mostBytes`. Also deletes what writers that died have left for an hour. Other processes may read, write and
// sweep the directory meanwhile: a reader has opened its entry or misses it.
void sweepEntries(const std::string& directory, int64_t mostBytes);

// Marks an entry, open as `descriptor`, as used now, unless it was within the last minute. `seconds`: the time of its file.
void noteUse(int descriptor, int64_t seconds);

}  // namespace meshfuse
