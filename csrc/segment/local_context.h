// LocalContext: facts about a local fusion that its text does not hold, while it is cut into steps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/template.h"
#include "segment/stored_cut.h"

namespace meshfuse {

class Expr;
class Fusion;

struct LocalContext {
  // By Val id: the layouts of inputs, of views, and of results with a memory order of their own. All other tensors are contiguous.
  std::map<int64_t, Layout> layouts;
  std::set<int64_t>
      views;  // permutes that no kernel computes, by Val id: their operand's memory under the strides of `layouts`
  DeviceInfo device;
  bool verify = true;  // the fusion after each pass
  std::span<const Template> templates = allTemplates();
  std::vector<std::string> remarks;      // decisions of passes with reasons, for explain
  std::optional<StoredCut> stored = {};  // where the steps are looked up and stored; nothing: nowhere

  // The group for a step with these ops, in topological order.
  Group groupOf(const Fusion& fusion, const std::vector<Expr*>& exprs) const;
  // The cheapest judgement of a group, or why no template accepts it.
  Verdict judge(const Group& group) const { return meshfuse::judge(group, device, templates); }
  // The same for a group that a template has accepted before: InternalError if all refuse.
  std::unique_ptr<const Judgement> judgementOf(const Group& group) const;
  // For the pass runner: no analyses are held, so there is nothing to drop.
  void changed(std::span<const std::string_view>) {}
};

// The program's text, then a line `# T1 strides [1, 8] alignment 64` for each layout; lines of views end with the word `view`.
[[nodiscard]] std::string toText(const Fusion& fusion, const LocalContext& context);

}  // namespace meshfuse
