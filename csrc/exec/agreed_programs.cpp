#include "exec/agreed_programs.h"

#include <algorithm>
#include <utility>

namespace meshfuse {

ProgramChoice AgreedPrograms::choose(const Shapes& shapes, const ShapeClass& wanted, const SymbolValues& values) const {
  ProgramChoice choice{.program = find(shapes), .sizes = wanted};
  if (choice.program == nullptr) {
    choice.program = findIn(uncompared_, shapes);
  }
  choice.isNew = choice.program == nullptr;
  if (choice.isNew && !wanted.isConstant()) {
    const auto like = std::ranges::find_if(agreed_, [&](const Entry& e) {
      return e.shapes.device == shapes.device && isSameClass(e.program->sizes, wanted);
    });
    choice.program = like == agreed_.end() ? nullptr : like->program;
  }
  if (choice.program != nullptr) {
    choice.sizes = choice.program->sizes;
    choice.sizes.values = choice.sizes.valuesFor(values);
  }
  return choice;
}

std::shared_ptr<const PlannedProgram> AgreedPrograms::find(const Shapes& shapes) const {
  return findIn(agreed_, shapes);
}

bool AgreedPrograms::isUncompared(const Shapes& shapes) const { return findIn(uncompared_, shapes) != nullptr; }

void AgreedPrograms::keep(const Shapes& shapes, std::shared_ptr<const PlannedProgram> program) {
  keepIn(agreed_, shapes, std::move(program));
}

void AgreedPrograms::keepUncompared(const Shapes& shapes, std::shared_ptr<const PlannedProgram> program) {
  if (!isUncompared(shapes)) {
    keepIn(uncompared_, shapes, std::move(program));
  }
}

void AgreedPrograms::forgetUncompared() {
  for (Entry& e : uncompared_) {
    evicted_.push_back(std::move(e.shapes));
  }
  uncompared_.clear();
}

std::shared_ptr<const PlannedProgram> AgreedPrograms::findIn(const Entries& entries, const Shapes& shapes) {
  const auto known = std::ranges::find(entries, shapes, &Entry::shapes);
  return known == entries.end() ? nullptr : known->program;
}

// The oldest entry of a program that has more than its share of the places; else the oldest of all.
AgreedPrograms::Entries::iterator AgreedPrograms::firstToGo(Entries& entries) const {
  const size_t share = std::max<size_t>(1, most_ / kSharesOfPrograms);
  for (size_t i = entries.size(); i-- > 0;) {
    if (std::cmp_greater(std::ranges::count(entries, entries[i].program, &Entry::program), share)) {
      return entries.begin() + static_cast<std::ptrdiff_t>(i);
    }
  }
  return std::prev(entries.end());
}

void AgreedPrograms::keepIn(Entries& entries, const Shapes& shapes, std::shared_ptr<const PlannedProgram> program) {
  entries.push_front({shapes, std::move(program)});
  if (entries.size() > most_) {
    const auto out = firstToGo(entries);
    evicted_.push_back(std::move(out->shapes));
    entries.erase(out);
  }
}

std::vector<AgreedPrograms::Shapes> AgreedPrograms::takeEvicted() { return std::exchange(evicted_, {}); }

}  // namespace meshfuse
