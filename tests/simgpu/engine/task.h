// What an operation of a stream, or a node of a graph, does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../protocol.h"

namespace simgpu {

struct CapturedCalls;
struct GraphRun;
struct Operation;
struct Posted;

struct Work {
  // Part: of a product, it does nothing. Graph: the launch of one.
  enum class Kind { Allocate, Free, Copy, Fill, Launch, Product, Part, Record, Wait, Collective, Graph } kind;
  uint64_t to = 0;          // Allocate, Free: the address
  uint64_t from = 0;        // Fill: the value
  uint64_t event = 0;       // Record, Wait
  bool isExternal = false;  // Record in a capture: a node, and each launch of the graph records the event
  uint64_t bytes = 0;
  LaunchShape shape;
  std::string parameters;
  MatrixProduct product;
  std::shared_ptr<Posted> posted;                 // Collective
  std::shared_ptr<const CapturedCalls> captured;  // Collective in a graph: each launch posts these calls
  std::shared_ptr<GraphRun> run;                  // Graph
  bool fails = false;                             // Launch: an error of the context comes of it
};

struct Task {
  std::shared_ptr<Operation> operation;
  Work work;
};

}  // namespace simgpu
