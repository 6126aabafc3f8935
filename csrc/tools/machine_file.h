// Descriptions of machines for `--machine`, as JSON.
#pragma once

#include <string>

#include "autoplan/machine.h"

namespace meshfuse {

struct MachineOptions;

// A name, such as h100, or the path of a JSON file. The file has the fields of DistributedConfig by name; one that is not there has its
// default:
//   {"machines": 2, "devicesPerMachine": 8, "memoryPerDevice": 80e9, "within": {"bandwidth": 450e9, "latency": 5e-6},
//    "between": {"bandwidth": 50e9, "latency": 2e-5}, "device": {"flops": 67e12, "flops16": 989e12, "bandwidth": 3.35e12, "launch": 3e-6}}
// Tables are lists of [size, seconds]. The size is in flops for products, in elements for functions and points, in bytes read and written
// for memory, and in bytes that a rank receives for collectives. Products and collectives are lists of entries with tables: "device":
// {"memory": [[2048, 2e-6], [32768, 4e-6]], "products": [{"op": "linear", "dtype": "Float", "contracted": 128, "times": [[8192, 2e-6],
// [65536, 4e-6]]}]} "within": {"collectives": [{"collective": "all_gather", "ranks": 2, "times": [[1024, 4e-6], [1048576, 2e-4]]}]} All
// fields of an entry must be there. UserError: a path that cannot be read, text that is not JSON, a field that does not exist or is not a
// number, an entry without a field.
[[nodiscard]] DistributedConfig machineOf(const std::string& nameOrPath);

// The description that flags name, with the fields that they replace.
[[nodiscard]] DistributedConfig machineOf(const MachineOptions& options);

// The file of a description that calibrate() has measured, without the links that were not measured.
[[nodiscard]] std::string machineText(const DistributedConfig& machine);

}  // namespace meshfuse
