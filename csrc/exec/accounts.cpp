#include "exec/accounts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/hash.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

constexpr size_t kMostOfALine = 400;

std::string lineOf(const std::string& text, size_t line) {
  size_t begin = 0;
  for (size_t i = 0; i < line && begin != std::string::npos; i++) {
    begin = text.find('\n', begin);
    begin = begin == std::string::npos ? begin : begin + 1;
  }
  return begin == std::string::npos ? "(nothing)" : text.substr(begin, text.find('\n', begin) - begin);
}

// The next part of `text`, which is cut off it together with the separator.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::vector<std::string_view> sizesOf(std::string_view list) {
  std::vector<std::string_view> sizes;
  for (list = list.substr(std::min<size_t>(1, list.size())); !list.empty();) {
    sizes.push_back(take(list, ','));
  }
  return sizes;
}

// `, other in dims [0, 2]`; nothing where these are no sizes.
std::string dimsThatDiffer(const ArgumentAccount& a, const ArgumentAccount& b) {
  const std::vector<std::string_view> ofA = sizesOf(a.whole);
  const std::vector<std::string_view> ofB = sizesOf(b.whole);
  std::vector<size_t> dims;
  for (size_t k = 0; k < ofA.size() && ofA.size() == ofB.size() && a.whole.starts_with('['); k++) {
    if (ofA[k] != ofB[k]) {
      dims.push_back(k);
    }
  }
  return dims.empty()       ? std::string()
         : dims.size() == 1 ? fmt::format(", other in dim {}", dims[0])
                            : fmt::format(", other in dims {}", fmt::join(dims, ", "));
}

std::string textOf(const ArgumentAccount& a, int rank) {
  const std::string part = a.given == a.whole ? "" : fmt::format(" for a whole of {}", a.whole);
  return fmt::format("{} {}{} on rank {}", a.type, a.given, part, rank);
}

}  // namespace

std::string firstDifference(const std::string& a, const std::string& b, int rankA, int rankB) {
  for (size_t line = 0;; line++) {
    const std::string x = lineOf(a, line);
    const std::string y = lineOf(b, line);
    if (x != y || x == "(nothing)") {
      return fmt::format("line {}: rank {} has \"{}\", rank {} has \"{}\"", line + 1, rankA, x, rankB, y);
    }
  }
}

std::string CallAccount::toString(size_t bytes) const {
  std::string message = fmt::format("{}\n{}\n", fusion, plan);
  std::string lines;
  size_t said = 0;
  for (const ArgumentAccount& a : arguments) {
    const std::string line = fmt::format("{}\t{}\t{}\t{}\n", a.input, a.type, a.given, a.whole);
    if (lines.size() + line.size() > bytes / 2) {
      break;
    }
    lines += line;
    said++;
  }
  message += fmt::format("{}\n{}", said, lines);
  const std::string_view fits = std::string_view(text).substr(0, bytes - std::min(bytes, message.size()));
  message += fits.size() == text.size() ? fits : fits.substr(0, fits.rfind('\n') + 1);
  return message;
}

CallAccount CallAccount::parse(std::string_view text) {
  CallAccount account;
  account.fusion = take(text, '\n');
  account.plan = take(text, '\n');
  const std::string_view number = take(text, '\n');
  size_t arguments = 0;
  (void)std::from_chars(number.data(), number.data() + number.size(), arguments);
  for (size_t i = 0; i < arguments && !text.empty(); i++) {
    std::string_view line = take(text, '\n');
    ArgumentAccount& a = account.arguments.emplace_back();
    for (std::string* part : {&a.input, &a.type, &a.given, &a.whole}) {
      *part = take(line, '\t');
    }
  }
  account.text = text;
  return account;
}

CallAccount accountOf(const Fusion& fusion, std::span<const Argument> inputs,
                      const std::vector<std::vector<int64_t>>& wholes, std::string_view plan) {
  CallAccount account;
  account.text = fusion.toString();
  account.fusion = hashText(account.text).hex();
  account.plan = hashText(plan).hex();
  for (size_t i = 0; i < inputs.size(); i++) {
    const std::string input = fmt::format("input {} ({})", i, fusion.inputs()[i]->toString());
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      std::vector<int64_t> given(t->sizes().begin(), t->sizes().end());
      std::vector<int64_t> whole = wholes[i];
      if (whole.size() > given.size()) {  // its elements are sizes
        whole.erase(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(given.size()));
        given = whole;
      }
      account.arguments.push_back({input, std::string(name(t->dtype())), fmt::format("[{}]", fmt::join(given, ", ")),
                                   fmt::format("[{}]", fmt::join(whole, ", "))});
    } else if (!wholes[i].empty()) {
      const std::string value = std::to_string(wholes[i][0]);
      account.arguments.push_back({input, "Int", value, value});
    }
  }
  return account;
}

// What one rank does in a call.
struct PlanAccounts::Said {
  enum class What { Unknown, Refuses, MakesAPlan, Runs } what = What::Unknown;
  std::string refusal = {};
  std::optional<CallAccount> call = {};  // none of a plan that this rank does not know, or has given up

  std::string toString(int rank) const {
    return fmt::format("rank {} {}", rank, what == What::Runs ? "runs the plan that it has" : "makes a plan");
  }
};

void PlanAccounts::add(Communicator& communicator, const std::shared_ptr<const PlanAccount>& plan) {
  auto accounts = std::dynamic_pointer_cast<const PlanAccounts>(communicator.programs());
  if (accounts == nullptr) {
    accounts = std::make_shared<const PlanAccounts>();
    communicator.setPrograms(accounts);
  }
  std::lock_guard lock(accounts->mutex_);
  std::erase_if(accounts->plans_, [](const auto& p) { return p.expired(); });
  accounts->plans_.push_back(plan);
}

std::shared_ptr<const PlanAccount> PlanAccounts::find(uint32_t program) const {
  std::lock_guard lock(mutex_);
  for (const std::weak_ptr<const PlanAccount>& known : plans_) {
    std::shared_ptr<const PlanAccount> plan = known.lock();
    for (int n = 0; plan != nullptr && n < plan->communications; n++) {
      if (shortHash(programNumber(plan->identity, n)) == program) {
        return plan;
      }
    }
  }
  return nullptr;
}

PlanAccounts::Said PlanAccounts::said(const Call& call) const {
  if (call.message.starts_with(kBadCall)) {
    return {Said::What::Refuses, std::string(call.message.substr(kBadCall.size()))};
  }
  if (call.message.starts_with(kMakesAPlan)) {
    std::string_view text = call.message;
    (void)take(text, '\n');
    return {Said::What::MakesAPlan, {}, CallAccount::parse(text)};
  }
  if (call.program == 0) {
    return {};
  }
  const std::shared_ptr<const PlanAccount> plan = find(call.program);
  return {Said::What::Runs, {}, plan == nullptr ? std::optional<CallAccount>() : plan->call};
}

std::optional<std::string> PlanAccounts::difference(const Call& a, const Call& b) const {
  const Said x = said(a);
  const Said y = said(b);
  if (x.what == Said::What::Unknown || y.what == Said::What::Unknown) {
    return std::nullopt;
  }
  for (const auto& [rank, s] : {std::pair{a.rank, &x}, std::pair{b.rank, &y}}) {
    if (s->what == Said::What::Refuses) {
      return fmt::format("{}; so says rank {}, and rank {} does not", s->refusal, rank,
                         rank == a.rank ? b.rank : a.rank);
    }
  }
  const std::string who = x.what == y.what ? "both run plans that they have"
                                           : fmt::format("{}, {}", x.toString(a.rank), y.toString(b.rank));
  if (!x.call || !y.call) {
    if (!x.call && !y.call) {
      return std::nullopt;
    }
    return fmt::format(
        "[run] ranks {} and {} call different programs: {}, which the other does not have; every rank must make the "
        "same calls, of the same programs in the same order",
        a.rank, b.rank, x.call ? y.toString(b.rank) : x.toString(a.rank));
  }
  if (x.call->fusion != y.call->fusion) {
    return fmt::format(
        "[run] ranks {} and {} call different programs, which differ in {}; {}; every rank must make the "
        "same calls, of the same programs in the same order",
        a.rank, b.rank, firstDifference(x.call->text, y.call->text, a.rank, b.rank).substr(0, 2 * kMostOfALine), who);
  }
  for (size_t i = 0; i < std::min(x.call->arguments.size(), y.call->arguments.size()); i++) {
    const ArgumentAccount& p = x.call->arguments[i];
    const ArgumentAccount& q = y.call->arguments[i];
    if (p.type != q.type || p.whole != q.whole) {
      return fmt::format(
          "[run] ranks {} and {} call one program with different arguments: {} is {} and {}{}; {}; give "
          "every rank its part of one whole, {} or {} (see Tensor::withGlobalShape)",
          a.rank, b.rank, p.input, textOf(p, a.rank), textOf(q, b.rank), dimsThatDiffer(p, q), who, p.whole, q.whole);
    }
  }
  if (x.call->plan != y.call->plan) {
    const bool sayAll = x.call->arguments.size() == y.call->arguments.size();  // of many arguments, what fits
    return fmt::format(
        "[run] ranks {} and {} plan the same program for {} with other options or another environment: {}; give every "
        "rank the same",
        a.rank, b.rank, sayAll ? "the same arguments" : "other arguments, or", who);
  }
  if (x.what == y.what) {
    return std::nullopt;  // at different places of one plan: no doing of the user
  }
  return fmt::format(
      "[run] ranks {} and {} call the same program with the same arguments, but {}; every rank must make the "
      "same calls, of one executor cache that keeps as many plans on all",
      a.rank, b.rank, who);
}

}  // namespace meshfuse
