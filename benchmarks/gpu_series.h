// Times of calls on a GPU.
#pragma once

#include <functional>

namespace meshfuse {

// Whether the GPUs are those of tests/simgpu, whose times say nothing of speed.
[[nodiscard]] bool isSimulated();
// Seconds of a call, of several that follow each other without the host between them: the median of three series, after one that compiles and
// records. end: awaits the calls.
[[nodiscard]] double secondsOfSeries(const std::function<void()>& call, const std::function<void()>& end);

}  // namespace meshfuse
