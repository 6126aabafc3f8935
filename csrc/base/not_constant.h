// NotConstantError: some code needs a size as a number, or the parts of a dim as digits, and there is only an expression. It is a bug where
// sizes are constants.
#pragma once

#include "base/error.h"

namespace meshfuse {

struct NotConstantError : InternalError {
  using InternalError::InternalError;
};

}  // namespace meshfuse
