// StepGraph: the steps of a program while segmentation adds ops to them. A step is a set of ops; merging steps updates the dependencies.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "segment/local_context.h"
#include "segment/segment.h"

namespace meshfuse {

struct StepNode {
  std::vector<Expr*> exprs;     // in topological order
  std::set<int64_t> producers;  // nodes
  std::set<int64_t> consumers;
  SegmentKind kind = SegmentKind::Kernel;
  std::unique_ptr<const Judgement> judgement = nullptr;  // Kernel, Library; null after an op joined that needed none
  std::string boundary;                                  // as in Segment
  std::vector<std::string> joins;                        // as in Segment
  bool dead = false;                                     // merged into another node
  int64_t begin = 0;  // when its first op was placed: nodes that depend on it have a larger `end`
  int64_t end = 0;    // when the last op was placed of it and of the nodes that it depends on, or later
};

class StepGraph {
 public:
  StepGraph(const Fusion& fusion, const LocalContext& context);

  StepNode& at(int64_t node) { return nodes_[node]; }
  const StepNode& at(int64_t node) const { return nodes_[node]; }
  int64_t size() const { return std::ssize(nodes_); }

  // The nodes that compute the operands of ops, apart from these ops.
  std::set<int64_t> producersOf(std::span<Expr* const> exprs) const;
  int64_t add(std::vector<Expr*> exprs, const std::set<int64_t>& producers, SegmentKind kind);
  void append(int64_t node, Expr* e);  // an op that depends on no other node
  // Notes why a node does not compute `result` too: the first reason is kept.
  void noteBoundary(int64_t node, const Val* result, const std::string& refusal);
  // Merges the nodes `with` into the first of them. It then computes `exprs`, all of their ops and more, and depends on
  // `producers`.
  void merge(const std::vector<int64_t>& with, const std::set<int64_t>& producers, std::vector<Expr*> exprs);
  // True if one node made of the nodes `merged` and an op that depends on the nodes `producers` would depend on itself.
  bool makesCycle(const std::vector<int64_t>& merged, const std::set<int64_t>& producers) const;

  void inTopologicalOrder(std::vector<Expr*>& exprs) const;
  // All ops of some nodes, in topological order.
  std::vector<Expr*> exprsOf(const std::vector<int64_t>& nodes) const;
  Group groupOf(const std::vector<Expr*>& exprs) const { return context_.groupOf(fusion_, exprs); }
  // The nodes that are not merged into others, each after the nodes that it depends on.
  std::vector<int64_t> inOrder() const;

 private:
  // A node has got an op that was placed last: it, and the nodes that depend on it, end now.
  void hasGrown(int64_t node);

  const Fusion& fusion_;
  const LocalContext& context_;
  std::vector<StepNode> nodes_;
  std::map<int64_t, int64_t> nodeOf_;    // expr id -> node
  std::map<int64_t, int64_t> position_;  // expr id -> place in the fusion's order
  int64_t now_ = 0;                      // the number of changes
};

}  // namespace meshfuse
