#include "exec/agreed_programs.h"

#include <algorithm>
#include <utility>

namespace meshfuse {

ProgramChoice AgreedPrograms::choose(const Shapes& shapes, const ShapeClass& wanted, const SymbolValues& values) const {
  ProgramChoice choice{.program = find(shapes), .sizes = wanted};
  choice.isNew = choice.program == nullptr;
  if (choice.isNew && !wanted.isConstant()) {
    const auto like = std::ranges::find_if(entries_, [&](const Entry& e) {
      return e.shapes.device == shapes.device && isSameClass(e.program->sizes, wanted);
    });
    choice.program = like == entries_.end() ? nullptr : like->program;
  }
  if (choice.program != nullptr) {
    choice.sizes = choice.program->sizes;
    choice.sizes.values = choice.sizes.valuesFor(values);
  }
  return choice;
}

std::shared_ptr<const PlannedProgram> AgreedPrograms::find(const Shapes& shapes) const {
  const auto known = std::ranges::find(entries_, shapes, &Entry::shapes);
  return known == entries_.end() ? nullptr : known->program;
}

void AgreedPrograms::keep(const Shapes& shapes, std::shared_ptr<const PlannedProgram> program) {
  entries_.push_front({shapes, std::move(program)});
  if (entries_.size() > most_) {
    evicted_.push_back(std::move(entries_.back().shapes));
    entries_.pop_back();
  }
}

std::vector<AgreedPrograms::Shapes> AgreedPrograms::takeEvicted() { return std::exchange(evicted_, {}); }

}  // namespace meshfuse
