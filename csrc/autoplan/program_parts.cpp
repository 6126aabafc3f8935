#include "autoplan/program_parts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "autoplan/roles.h"
#include "autoplan/strategies.h"
#include "autoplan/work.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

double bytesOf(const TensorView* tv) {
  return productOf(tv->constantShape(), [](int64_t n) { return static_cast<double>(n); }) *
         static_cast<double>(dataTypeSize(tv->dtype()));
}

class Parts {
 public:
  explicit Parts(const MicroBatches& micro) : micro_(micro) {
    for (const Expr* e : micro.program->exprs()) {
      result_.exprs.push_back(e);
    }
  }

  ProgramParts run() {
    findParameters();
    const int64_t forward = endOfForward();
    for (int64_t step = 0; step < steps(); step++) {
      const bool isOfSums = roleOf(step) == MicroBatchRole::OfSums;
      result_.passes.push_back(isOfSums                                 ? PassOfProgram::Update
                               : step >= forward && result_.hasBackward ? PassOfProgram::Backward
                                                                        : PassOfProgram::Forward);
      if (result_.passes.back() == PassOfProgram::Forward && roleOf(step) != MicroBatchRole::Whole) {
        forward_.push_back(step);
      }
    }
    cut();
    assignForward();
    assignOthers();
    moveCopies();
    return std::move(result_);
  }

 private:
  int64_t steps() const { return std::ssize(result_.exprs); }
  MicroBatchRole roleOf(int64_t step) const {
    const Val* out = result_.exprs[step]->output();
    return out->isTensor() ? micro_.roles.at(out->id()) : MicroBatchRole::Whole;
  }

  // Of whole tensors: the parameters that they are made of.
  void findParameters() {
    const Roles roles(*micro_.program);
    for (const Val* in : micro_.program->inputs()) {
      if (in->isTensor() && roles.isParameter(in)) {
        parameters_[in->id()] = {in->id()};
        shapes_.insert(in->asTensor()->constantShape());
      }
    }
    for (int64_t step = 0; step < steps(); step++) {
      const Expr& e = *result_.exprs[step];
      for (const TensorView* in : e.tensorInputs()) {
        if (roleOf(step) == MicroBatchRole::Whole && parameters_.contains(in->id())) {
          const std::set<int64_t> of = parameters_.at(in->id());
          parameters_[e.output()->id()].insert(of.begin(), of.end());
        }
      }
    }
  }

  bool readsParameters(const Expr& e) const {
    return std::ranges::any_of(e.tensorInputs(), [&](const TensorView* in) { return parameters_.contains(in->id()); });
  }

  std::set<int64_t> parametersOf(const TensorView* tv) const {
    const auto of = parameters_.find(tv->id());
    return of == parameters_.end() ? std::set<int64_t>() : of->second;
  }

  // The step after the last one of the forward pass.
  int64_t endOfForward() {
    std::set<int64_t> seen;
    std::set<int64_t> lastWeight;  // the parameters of the last product or table
    int64_t last = 0;              // the first step that reads the last parameter
    std::vector<int64_t> gradients;
    std::map<int64_t, int64_t> readAgain;  // by parameter: a step
    for (int64_t step = 0; step < steps(); step++) {
      const MicroBatchRole role = roleOf(step);
      if (role != MicroBatchRole::Rows && role != MicroBatchRole::Sum) {
        continue;
      }
      const Expr& e = *result_.exprs[step];
      for (const TensorView* in : e.tensorInputs()) {
        for (const int64_t p : parametersOf(in)) {
          if (!seen.insert(p).second) {
            readAgain.try_emplace(p, step);
            continue;
          }
          last = step;
          if (isContraction(e) || hasIndex(e)) {
            lastWeight = parametersOf(in);
          }
        }
      }
      const Sizes shape = e.tensorOutput()->constantShape();
      if (role == MicroBatchRole::Sum && !shape.empty() && shapes_.contains(shape)) {
        gradients.push_back(step);
      }
    }
    const auto gradient = std::ranges::upper_bound(gradients, last);
    result_.hasBackward = gradient != gradients.end();
    if (!result_.hasBackward) {
      return steps();
    }
    int64_t end = *gradient;
    for (const int64_t p : lastWeight) {
      const auto again = readAgain.find(p);
      end = again != readAgain.end() && again->second > last ? std::min(end, again->second) : end;
    }
    return end;
  }

  // Cuts in positions of the forward pass: a cut at k is after forward_[k].
  void cut() {
    const int64_t count = std::ssize(forward_);
    std::vector<double> bytes(count, 0.0);
    std::vector<int64_t> tensors(count, 0);
    std::map<const Val*, int64_t> made;
    std::map<int64_t, std::pair<const TensorView*, int64_t>> lastRead;  // by id
    for (int64_t k = 0; k < count; k++) {
      const Expr& e = *result_.exprs[forward_[k]];
      for (const TensorView* in : e.tensorInputs()) {
        if (made.contains(in)) {
          lastRead[in->id()] = {in, k};
        }
      }
      made[e.output()] = k;
    }
    for (const auto& [id, read] : lastRead) {
      for (int64_t k = made.at(read.first); k < read.second; k++) {
        bytes[k] += bytesOf(read.first);
        tensors[k]++;
      }
    }
    std::vector<double> flops = mapped(forward_, [&](int64_t step) { return workOf(*result_.exprs[step]).flops; });
    const double half = sumOf(flops) / 2;
    double smallest = std::numeric_limits<double>::infinity();
    const int64_t most = tensors.empty() ? 0 : std::ranges::max(tensors);
    for (int64_t crossing = 1; crossing <= most && smallest > half; crossing++) {
      std::vector<int64_t> cuts = cutsWith(crossing, tensors, bytes);
      double largest = 0;
      double part = 0;
      for (int64_t k = 0; k < count; k++) {
        part = flops[k] + (k > 0 && contains(cuts, k - 1) ? 0 : part);
        largest = std::max(largest, part);
      }
      if (largest < smallest) {
        smallest = largest;
        cuts_ = std::move(cuts);
      }
    }
    while (std::ssize(cuts_) + 1 > kMostParts) {
      std::vector<int64_t> fewer;
      for (int64_t k = 1; k < std::ssize(cuts_); k += 2) {
        fewer.push_back(cuts_[k]);
      }
      cuts_ = std::move(fewer);
    }
  }

  std::vector<int64_t> cutsWith(int64_t crossing, const std::vector<int64_t>& tensors,
                                const std::vector<double>& bytes) const {
    std::vector<int64_t> cuts;
    bool isWorthwhile = false;  // parameters were read since the last cut
    std::optional<int64_t> at;
    for (int64_t k = 0; k < std::ssize(forward_); k++) {
      if (readsParameters(*result_.exprs[forward_[k]])) {
        if (at) {
          cuts.push_back(*at);
        }
        at.reset();
        isWorthwhile = true;
      }
      const bool isAllowed = isWorthwhile && k + 1 < std::ssize(forward_) && tensors[k] >= 1 &&
                             tensors[k] <= crossing && !followsAlone(k + 1);
      if (isAllowed && (!at || bytes[k] <= bytes[*at])) {
        at = k;
      }
    }
    return cuts;
  }

  // Whether the op is elementwise and the only reader of the result before it.
  bool followsAlone(int64_t k) const {
    const Expr& e = *result_.exprs[forward_[k]];
    const Val* made = result_.exprs[forward_[k - 1]]->output();
    return ruleOf(e).form == OpForm::Pointwise && contains(e.inputs(), made) && micro_.program->uses(made).size() == 1;
  }

  void assignForward() {
    result_.parts.assign(steps(), kEveryPart);
    int64_t part = 0;
    for (int64_t k = 0; k < std::ssize(forward_); k++) {
      const Expr& e = *result_.exprs[forward_[k]];
      result_.parts[forward_[k]] = part;
      lastPart_[e.output()->id()] = part;
      for (const TensorView* in : e.tensorInputs()) {
        lastPart_[in->id()] = part;
        for (const int64_t p : parametersOf(in)) {
          lastPart_[p] = part;
        }
      }
      part += contains(cuts_, k) ? 1 : 0;
    }
    result_.count = std::ssize(cuts_) + 1;
  }

  int64_t lastPartOf(int64_t id) const {
    const auto at = lastPart_.find(id);
    if (at != lastPart_.end()) {
      return at->second;
    }
    int64_t part = kUnbounded;
    for (const int64_t p : parametersOf(micro_.program->val(id)->asTensor())) {
      part = p == id ? part : std::min(part, lastPartOf(p));
    }
    return part;
  }

  void assignOthers() {
    for (int64_t step = 0; step < steps(); step++) {
      if (result_.parts[step] != kEveryPart || roleOf(step) == MicroBatchRole::Whole) {
        continue;
      }
      const Expr& e = *result_.exprs[step];
      int64_t part = result_.count - 1;
      for (const TensorView* in : e.tensorInputs()) {
        part = std::min(part, lastPartOf(in->id()));
      }
      for (const auto& [out, in] : micro_.program->aliases()) {
        part = out == e.output() ? std::min(part, lastPartOf(in->id())) : part;
      }
      result_.parts[step] = part;
      lastPart_[e.output()->id()] = part;
    }
  }

  // Copies of gradients that are not smaller, such as views and casts, are where they are read: there the gradient is received once.
  void moveCopies() {
    for (int64_t step = steps() - 1; step >= 0; step--) {
      const Expr& e = *result_.exprs[step];
      partOf_[e.id()] = result_.parts[step];
      const bool isCopy = e.tensorInputs().size() == 1 && (isView(e) || ruleOf(e).form == OpForm::Pointwise) &&
                          bytesOf(e.tensorOutput()) >= bytesOf(e.tensorInputs()[0]);
      if (isCopy && result_.passes[step] == PassOfProgram::Backward && result_.parts[step] != kEveryPart) {
        int64_t part = kEveryPart;
        for (const Expr* reader : micro_.program->uses(e.output())) {
          part = partOf_.contains(reader->id()) ? std::max(part, partOf_.at(reader->id())) : part;
        }
        partOf_[e.id()] = result_.parts[step] = part == kEveryPart ? result_.parts[step] : part;
      }
    }
  }

  const MicroBatches& micro_;
  ProgramParts result_;
  std::map<int64_t, std::set<int64_t>> parameters_;  // by tensor that is made of parameters only
  std::set<Sizes> shapes_;                           // of parameters
  std::vector<int64_t> forward_;                     // steps
  std::vector<int64_t> cuts_;                        // positions in forward_
  std::map<int64_t, int64_t> partOf_;                // by id of an op
  std::map<int64_t, int64_t> lastPart_;              // by tensor: of its last reader in the forward pass, or of its op
};

}  // namespace

ProgramParts programParts(const MicroBatches& micro) { return Parts(micro).run(); }

}  // namespace meshfuse
