// Descriptions of machines for `meshfuse plan --machine`.
#pragma once

#include <string>

#include "autoplan/machine.h"

namespace meshfuse {

// A name, such as h100, or the path of a JSON file. The file has the fields of DistributedConfig by name; one that is not there has its
// default:
//   {"machines": 2, "devicesPerMachine": 8, "memoryPerDevice": 80e9, "within": {"bandwidth": 450e9, "latency": 5e-6},
//    "between": {"bandwidth": 50e9, "latency": 2e-5}, "device": {"flops": 67e12, "flops16": 989e12, "bandwidth": 3.35e12, "launch": 3e-6}}
// UserError: a path that cannot be read, text that is not JSON, a field that does not exist or is not a number.
[[nodiscard]] DistributedConfig machineOf(const std::string& nameOrPath);

}  // namespace meshfuse
