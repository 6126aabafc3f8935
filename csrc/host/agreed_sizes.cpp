#include "host/agreed_sizes.h"

#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "host/program.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

namespace {

// Of one rank: its values, and in a second line why it has no sizes.
struct Message {
  std::string_view values;
  std::string_view refusal;
};

Message messageIn(std::string_view text) {
  const size_t end = text.find('\n');
  return {text.substr(0, end), text.substr(end + 1)};
}

void checkSameValues(const std::vector<Message>& messages) {
  std::map<std::string_view, std::vector<int64_t>> ranksOf;  // by values
  for (const int64_t rank : indices(messages)) {
    ranksOf[messages[rank].values].push_back(rank);
  }
  check(ranksOf.size() == 1, "[host program] the ranks give different sizes: {}; give the same values on all ranks",
        joined(ranksOf, "; ", [](const auto& entry) {
          return fmt::format("{} on rank{} {}", entry.first, entry.second.size() == 1 ? "" : "s",
                             fmt::join(entry.second, ", "));
        }));
}

}  // namespace

std::shared_ptr<const ProgramSizes> sizesFor(const HostProgram& program, const std::map<std::string, int64_t>& values) {
  return program.constant != nullptr ? program.constant
                                     : std::make_shared<const ProgramSizes>(sizesOf(program, values));
}

std::shared_ptr<const ProgramSizes> agreedSizes(const HostProgram& program,
                                                const std::map<std::string, int64_t>& values,
                                                Communicator& communicator) {
  if (program.constant != nullptr || !program.communicates) {
    return sizesFor(program, values);
  }
  std::optional<ProgramSizes> sizes;
  std::string refusal;
  try {
    sizes = sizesOf(program, values);
  } catch (const UserError& why) {
    refusal = why.what();
  }
  const auto given = [&](const auto& symbol) {
    const auto value = values.find(symbol.first);
    return fmt::format("{} = {}", symbol.first, value == values.end() ? "none" : std::to_string(value->second));
  };
  communicator.setStep(-1, "the binding of a program");
  communicator.setProgram(programNumber(program.identity, 0));
  const std::vector<std::string> texts = communicator.exchange(joined(program.symbols, ", ", given) + "\n" + refusal);
  communicator.setProgram(0);
  communicator.setStep(-1, "");
  const auto messages = mapped(texts, [](const std::string& text) { return messageIn(text); });
  checkSameValues(messages);
  for (const int64_t rank : indices(messages)) {
    check(messages[rank].refusal.empty(), "[rank {}/{}] {}", rank, std::ssize(messages), messages[rank].refusal);
  }
  return std::make_shared<const ProgramSizes>(*std::move(sizes));
}

}  // namespace meshfuse
