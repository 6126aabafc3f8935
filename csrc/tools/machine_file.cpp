#include "tools/machine_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/op_rule.h"
#include "tools/options.h"

namespace meshfuse {

namespace {

using Json = nlohmann::ordered_json;

// Flops without sparsity, memory and links of the SXM forms, at the peak of the data sheet: NVLink, in one direction, and one network card
// for each device. Latencies and launches are assumed.
const std::vector<std::pair<std::string, DistributedConfig>>& namedMachines() {
  static const std::vector<std::pair<std::string, DistributedConfig>> all{
      {"a100",
       {.devicesPerMachine = 8,
        .within = {.bandwidth = 300e9, .latency = 5e-6},
        .between = {.bandwidth = 25e9, .latency = 20e-6},
        .memoryPerDevice = 80e9,
        .device = {.flops = 19.5e12, .flops16 = 312e12, .bandwidth = 2.039e12, .launch = 3e-6}}},
      {"h100",
       {.devicesPerMachine = 8,
        .within = {.bandwidth = 450e9, .latency = 5e-6},
        .between = {.bandwidth = 50e9, .latency = 20e-6},
        .memoryPerDevice = 80e9,
        .device = {.flops = 67e12, .flops16 = 989e12, .bandwidth = 3.35e12, .launch = 3e-6}}},
      {"h200",
       {.devicesPerMachine = 8,
        .within = {.bandwidth = 450e9, .latency = 5e-6},
        .between = {.bandwidth = 50e9, .latency = 20e-6},
        .memoryPerDevice = 141e9,
        .device = {.flops = 67e12, .flops16 = 989e12, .bandwidth = 4.8e12, .launch = 3e-6}}}};
  return all;
}

std::string cut(std::string text) {
  constexpr size_t kLength = 60;
  return text.size() <= kLength ? text : text.substr(0, kLength) + "...";
}

// A value, for errors. Lists and objects are not written out: they may be deep and long.
std::string shown(const Json& value) {
  return value.is_array()    ? fmt::format("a list of length {}", value.size())
         : value.is_object() ? "an object"
                             : cut(value.dump(-1, ' ', true));  // ASCII, so that it may be cut anywhere
}

// The text of a library's error, without its name.
std::string reasonOf(const Json::exception& e) {
  const std::string_view what = e.what();
  return cut(std::string(what.substr(std::min(what.size(), what.find(']') + 2))));
}

Json parsed(const std::string& path, std::ifstream& file) {
  try {
    return Json::parse(file);
  } catch (const Json::out_of_range& e) {
    throwUserError(fmt::format("[machine] {} has a number that no 64-bit floating type holds: {}", path, reasonOf(e)));
  } catch (const Json::parse_error& e) {
    throwUserError(fmt::format("[machine] {} is not JSON: {}; write {{\"machines\": 2, \"devicesPerMachine\": 8}}",
                               path, reasonOf(e)));
  }
}

// Sets the fields that an object of the file has.
class Fields {
 public:
  Fields(const std::string& path, const Json& object, std::string prefix)
      : path_(path), object_(object), prefix_(std::move(prefix)) {
    if (!object.is_object()) {
      throwUserError(fmt::format("[machine] {}: {} is {}, expected an object with fields", path,
                                 prefix_.empty() ? "the description" : prefix_.substr(0, prefix_.size() - 1),
                                 shown(object)));
    }
  }

  void set(const std::string& name, double& value) {
    if (const Json* given = find(name)) {
      value = number(name, *given);
    }
  }

  void set(const std::string& name, int64_t& value) {
    if (const Json* given = find(name)) {
      const bool isTooLarge =
          given->is_number_unsigned() && given->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
      check(given->is_number_integer() && !isTooLarge, "[machine] {}: {}{} is {}, expected an integer of 64 bits",
            path_, prefix_, name, shown(*given));
      value = given->get<int64_t>();
    }
  }

  void set(const std::string& name, LinkSpeed& value) {
    if (const Json* given = find(name)) {
      Fields fields(path_, *given, prefix_ + name + ".");
      fields.set("bandwidth", value.bandwidth);
      fields.set("latency", value.latency);
      fields.set("collectives", value.collectives);
      fields.refuseOthers();
    }
  }

  void set(const std::string& name, DeviceSpeed& value) {
    if (const Json* given = find(name)) {
      Fields fields(path_, *given, prefix_ + name + ".");
      fields.set("flops", value.flops);
      fields.set("flops16", value.flops16);
      fields.set("bandwidth", value.bandwidth);
      fields.set("launch", value.launch);
      fields.set("products", value.products);
      fields.set("functions", value.functions);
      fields.set("points", value.points);
      fields.set("memory", value.memory);
      fields.refuseOthers();
    }
  }

  void set(const std::string& name, TimeTable& value) {
    if (const Json* given = find(name)) {
      value.points.clear();
      for (const Json& point : list(name, *given)) {
        check(point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number(),
              "[machine] {}: {}{} has a point that is {}, expected [size, seconds]", path_, prefix_, name,
              shown(point));
        value.points.emplace_back(point[0].get<double>(), point[1].get<double>());
      }
    }
  }

  void set(const std::string& name, std::vector<CollectiveSpeed>& value) {
    if (const Json* given = find(name)) {
      for (const Json& entry : list(name, *given)) {
        Fields fields(path_, entry, prefix_ + name + ".");
        CollectiveSpeed& speed = value.emplace_back();
        fields.require("collective", speed.kind);
        fields.require("ranks", speed.ranks);
        fields.require("times", speed.times);
        fields.refuseOthers();
      }
    }
  }

  void set(const std::string& name, std::vector<ProductSpeed>& value) {
    if (const Json* given = find(name)) {
      for (const Json& entry : list(name, *given)) {
        Fields fields(path_, entry, prefix_ + name + ".");
        ProductSpeed& speed = value.emplace_back();
        fields.require("op", speed.form.op);
        const std::optional<ExprKind> kind = parseExprKind(speed.form.op);
        check(kind && ruleOf(*kind).form == OpForm::Contract,
              "[machine] {}: {}{}.op is {}, expected a product, such as linear or matmul", path_, prefix_, name,
              cut(speed.form.op));
        fields.require("dtype", speed.form.type);
        fields.require("contracted", speed.form.contracted);
        fields.require("times", speed.times);
        fields.refuseOthers();
      }
    }
  }

  void set(const std::string& name, std::string& value) {
    if (const Json* given = find(name)) {
      check(given->is_string(), "[machine] {}: {}{} is {}, expected a text", path_, prefix_, name, shown(*given));
      value = given->get<std::string>();
    }
  }

  void set(const std::string& name, DataType& value) {
    std::string text(meshfuse::name(value));
    set(name, text);
    const std::optional<DataType> type = parseDataType(text);
    check(type.has_value(), "[machine] {}: {}{} is \"{}\", expected a type, such as Float", path_, prefix_, name,
          cut(text));
    value = *type;
  }

  void set(const std::string& name, Collective& value) {
    if (const Json* given = find(name)) {
      const std::optional<Collective> kind =
          given->is_string() ? parseCollective(given->get<std::string>()) : std::nullopt;
      check(kind && traits(*kind).inPlans, "[machine] {}: {}{} is {}, expected one of {}", path_, prefix_, name,
            shown(*given), identifiersOf([](const CollectiveTraits& t) { return t.inPlans; }));
      value = *kind;
    }
  }

  // Of an entry of a list: nothing that it leaves out has a default.
  template <class T>
  void require(const std::string& name, T& value) {
    check(object_.contains(name), "[machine] {}: an entry of {} has no field {}", path_,
          prefix_.substr(0, prefix_.size() - 1), name);
    set(name, value);
  }

  void refuseOthers() const {
    for (const auto& [name, value] : object_.items()) {
      check(contains(known_, name), "[machine] {}: there is no field {}{}, expected one of {}", path_, prefix_,
            cut(name), joined(known_, ", ", std::identity()));
    }
  }

 private:
  const Json& list(const std::string& name, const Json& given) const {
    check(given.is_array(), "[machine] {}: {}{} is {}, expected a list", path_, prefix_, name, shown(given));
    return given;
  }

  const Json* find(const std::string& name) {
    known_.push_back(name);
    const auto at = object_.find(name);
    return at == object_.end() ? nullptr : &*at;
  }

  double number(const std::string& name, const Json& given) const {
    check(given.is_number(), "[machine] {}: {}{} is {}, expected a number", path_, prefix_, name, shown(given));
    return given.get<double>();
  }

  const std::string& path_;
  const Json& object_;
  const std::string prefix_;  // of names in errors: within.
  std::vector<std::string> known_;
};

Json jsonOf(const TimeTable& table) {
  return mapped(table.points, [](const auto& point) { return Json{point.first, point.second}; });
}

Json jsonOf(const LinkSpeed& link) {
  return {{"bandwidth", link.bandwidth},
          {"latency", link.latency},
          {"collectives", mapped(link.collectives, [](const CollectiveSpeed& c) {
             return Json{{"collective", identifier(c.kind)}, {"ranks", c.ranks}, {"times", jsonOf(c.times)}};
           })}};
}

// 80GB, 512MB, 1.5kB, or a number of bytes.
double bytesOf(std::string_view text, std::string_view flag) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}};
  std::string_view number = text;
  double unit = 1;
  for (const auto& [name, size] : kUnits) {
    if (number.ends_with(name)) {
      number.remove_suffix(name.size());
      unit = size;
      break;
    }
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  check(error == std::errc() && end == number.data() + number.size() && value > 0,
        "[command line] {} is \"{}\", expected bytes, such as 80GB or 512MB", flag, text);
  return value * unit;
}

}  // namespace

std::string machineText(const DistributedConfig& machine) {
  Json json{{"machines", machine.machines},
            {"devicesPerMachine", machine.devicesPerMachine},
            {"memoryPerDevice", machine.memoryPerDevice}};
  if (machine.devicesPerMachine > 1) {
    json["within"] = jsonOf(machine.within);
  }
  if (machine.machines > 1) {
    json["between"] = jsonOf(machine.between);
  }
  const DeviceSpeed& d = machine.device;
  json["device"] = {{"flops", d.flops},
                    {"flops16", d.flops16},
                    {"bandwidth", d.bandwidth},
                    {"launch", d.launch},
                    {"products", mapped(d.products,
                                        [](const ProductSpeed& p) {
                                          return Json{{"op", p.form.op},
                                                      {"dtype", name(p.form.type)},
                                                      {"contracted", p.form.contracted},
                                                      {"times", jsonOf(p.times)}};
                                        })},
                    {"functions", jsonOf(d.functions)},
                    {"points", jsonOf(d.points)},
                    {"memory", jsonOf(d.memory)}};
  return json.dump(2) + "\n";
}

DistributedConfig machineOf(const std::string& nameOrPath) {
  for (const auto& [name, machine] : namedMachines()) {
    if (name == nameOrPath) {
      return machine;
    }
  }
  std::ifstream file(nameOrPath, std::ios::binary);
  check(file.good(), "[machine] {} is neither a file that can be read nor a known machine; known are {}", nameOrPath,
        joined(namedMachines(), ", ", [](const auto& entry) { return entry.first; }));
  const Json json = parsed(nameOrPath, file);
  DistributedConfig machine;
  Fields fields(nameOrPath, json, "");
  fields.set("machines", machine.machines);
  fields.set("devicesPerMachine", machine.devicesPerMachine);
  fields.set("within", machine.within);
  fields.set("between", machine.between);
  fields.set("memoryPerDevice", machine.memoryPerDevice);
  fields.set("device", machine.device);
  fields.refuseOthers();
  return machine;
}

DistributedConfig machineOf(const MachineOptions& options) {
  DistributedConfig machines = options.machine.empty() ? DistributedConfig() : machineOf(options.machine);
  machines.machines = options.machines.value_or(machines.machines);
  machines.devicesPerMachine = options.devices.value_or(machines.devicesPerMachine);
  const auto replace = [](double& field, const std::string& text, std::string_view flag) {
    if (!text.empty()) {
      field = bytesOf(text, flag);
    }
  };
  replace(machines.memoryPerDevice, options.memory, "--memory");
  replace(machines.within.bandwidth, options.within, "--within");
  replace(machines.between.bandwidth, options.between, "--between");
  return machines;
}

}  // namespace meshfuse
