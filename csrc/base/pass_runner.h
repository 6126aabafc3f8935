// Runs the table of a stage's passes over its program, for any type of program.
//
//   const PassRow<Fusion, PassContext> kPasses[] = {
//       {"remove-empty", removeEmpty, "before all others: they need not handle empty tensors"},
//       {"propagate-shardings", propagateShardings, "needs the final graph; all later passes read shardings", {"exact-ids"}},
//   };
//   PassRunner<Fusion, PassContext>{.stage = "preseg", .print = ..., .verify = ...}.run(kPasses, fusion, context);
//
// A pass returns whether it changed the program. If it did, the context drops all analyses except the ones that the row's last column
// names. MESHFUSE_DUMP=pass,pass or all writes the program after these passes (and, with all, before the first) to the sink; for a pass
// that changed nothing it writes one line. With verification on, a pass that leaves a wrong program is an InternalError that names it, and an
// InternalError from a pass names a reproducer. Its message begins with the stage and the pass. A NotConstantError stays one, without a
// reproducer.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/not_constant.h"
#include "base/ranges.h"

namespace meshfuse {

template <class Program, class Context>
struct PassRow {
  std::string_view name;
  bool (*run)(Program&, Context&);
  std::string_view reason;                   // why it stands at this place
  std::vector<std::string_view> keeps = {};  // analyses that stay valid when it changes the program
};

struct PassOptions {
  std::string dump;    // names of passes separated by commas, or "all"
  bool verify = true;  // the program, after each pass
  std::function<void(std::string_view)> sink = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  };

  static PassOptions fromEnvironment() {
    const char* dump = std::getenv("MESHFUSE_DUMP");
    return {.dump = dump == nullptr ? "" : dump};
  }
  bool dumps(std::string_view pass) const {
    return std::ranges::any_of(std::views::split(dump, ','), [&](const auto name) {
      const std::string_view one(name.begin(), name.end());
      return one == "all" || one == pass;
    });
  }
};

// Context: void changed(std::span<const std::string_view> keeps).
template <class Program, class Context>
struct PassRunner {
  std::string_view stage;
  std::function<std::string(const Program&)> print;
  std::function<std::vector<std::string>(const Program&)> verify;
  PassOptions options = PassOptions::fromEnvironment();
  // Given the pass and the program's text before the stage, writes a reproducer and returns its path, or "".
  std::function<std::string(std::string_view pass, const std::string& text)> reproduce = {};

  // True if a pass changed the program.
  bool run(std::span<const PassRow<Program, Context>> rows, Program& program, Context& context) const {
    const bool reproduces = reproduce && options.verify;
    const std::string before = reproduces ? print(program) : "";
    if (options.dumps("all") && !rows.empty()) {
      options.sink(fmt::format("// {}: before {}\n{}", stage, rows.front().name, print(program)));
    }
    bool any = false;
    for (const PassRow<Program, Context>& row : rows) {
      try {
        any = runOne(row, program, context) || any;
      } catch (const NotConstantError& e) {  // for the caller, who may run the passes again for constant sizes
        throw NotConstantError(fmt::format("[{}, {}] {}", stage, row.name, e.what()));
      } catch (const InternalError& e) {
        const std::string path = reproduces ? reproduce(row.name, before) : "";
        throwInternalError(
            fmt::format("[{}, {}] {}{}{}", stage, row.name, e.what(), path.empty() ? "" : "\nreproducer: ", path));
      }
    }
    return any;
  }

 private:
  bool runOne(const PassRow<Program, Context>& row, Program& program, Context& context) const {
    bool changed = row.run(program, context);
    if (changed) {
      context.changed(row.keeps);
    }
    if (options.dumps(row.name)) {
      options.sink(changed ? fmt::format("// {}: after {}\n{}", stage, row.name, print(program))
                           : fmt::format("// {}: {} changed nothing\n", stage, row.name));
    }
    if (changed && options.verify && verify) {
      if (const std::vector<std::string> violations = verify(program); !violations.empty()) {
        throwInternalError(
            fmt::format("produced an invalid program:\n  {}\n{}", joined(violations, "\n  "), print(program)));
      }
    }
    return changed;
  }
};

template <class Program, class Context>
[[nodiscard]] std::vector<std::string_view> passNames(std::span<const PassRow<Program, Context>> rows) {
  return mapped(rows, &PassRow<Program, Context>::name);
}

// The pipeline as text, one line for each pass with its reason: golden-tested by each stage.
template <class Program, class Context>
[[nodiscard]] std::string printPasses(std::span<const PassRow<Program, Context>> rows) {
  return joined(rows, "", [](const auto& row) { return fmt::format("{}: {}\n", row.name, row.reason); });
}

}  // namespace meshfuse
