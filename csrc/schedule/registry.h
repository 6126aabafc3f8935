// The schedulers, one row each, tried by priority.
#pragma once

#include <span>

#include "schedule/group.h"

namespace meshfuse {

[[nodiscard]] std::span<const Scheduler> kernelSchedulers();

}  // namespace meshfuse
