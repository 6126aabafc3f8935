// Time for tests that ask how soon something happened.
#pragma once

#include <chrono>

namespace meshfuse {

// Time in which this machine was at work for those who ask, since some moment. A virtual machine may stand still for seconds, and one
// that is crowded may let nobody in: what is late then says nothing of the program. The same in this process and in its children.
[[nodiscard]] std::chrono::milliseconds machineTime();

}  // namespace meshfuse
