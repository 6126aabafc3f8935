#include "base/error.h"

namespace meshfuse {

void throwUserError(std::string message) { throw UserError(message); }
void throwInternalError(std::string message) { throw InternalError(message); }
void throwDeviceError(std::string message) { throw DeviceError(message); }

}  // namespace meshfuse
