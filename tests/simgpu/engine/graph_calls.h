// The requests about captures and graphs.
#pragma once

#include <string>

#include "work.h"

namespace simgpu {

bool isGraphCall(Call call);

// The reply to such a request; `text` is what follows it.
Reply answerGraphCall(Devices& devices, const Request& request, const Caller& caller, const std::string& payload,
                      std::string& text);

}  // namespace simgpu
