// Whether one kernel of rows is as fast as two that compute its group in two parts.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/extents.h"
#include "schedule/rows.h"

namespace meshfuse {

namespace {

// Limit of the tensors outside the caches, out of the kMaxKernelTensors of a kernel: prefetchers and write buffers cannot track more.
constexpr size_t kMaxMemoryStreams = 16;
constexpr int64_t kManyRows = 256;       // parts of them, which sum columns too, are as many as the threads of a CPU
constexpr int64_t kNarrowRow = 128;      // elements of rows that two kernels sum faster along both dims
constexpr int64_t kMostRegisters = 255;  // of a thread on a GPU
constexpr int64_t kBusyShare = 4;        // a quarter of a GPU's threads keeps its memory busy

bool isSerial(const std::vector<tile::Builder::DigitSpec>& axis) {
  return std::ranges::any_of(axis, [](const auto& d) { return d.level == tile::Level::Serial; });
}

int64_t rowElements(const RowsJudgement& j) {
  return (j.choices[0].innerReduced ? usualExtent(j.choices[0].N) : 1) * usualExtent(j.choices[0].K);
}

// A row is read by more than one sweep.
bool keepsRows(const RowsJudgement& j) { return j.coordinates.stages > 1 || j.coordinates.lateOutputs; }

bool rowsInRegisters(const RowsJudgement& j) {
  return j.coordinates.hasReduction() && !isSerial(j.digits.n) && !isSerial(j.digits.k);
}

// Inputs that a row has elements of.
int64_t rowInputs(const RowsJudgement& j) {
  return std::ranges::count_if(j.group.inputs, [&](const TensorView* in) {
    return j.coordinates.isSpread(in) && usualElements(*in) > rowElements(j);
  });
}

int64_t rowBytes(const RowsJudgement& j) {
  return sumOf(j.group.inputs, [&](const TensorView* in) {
    return j.coordinates.isSpread(in) ? rowElements(j) * dataTypeSize(in->dtype()) : 0;
  });
}

int64_t threadsOf(const std::vector<tile::Builder::DigitSpec>& axis) {
  return productOf(axis, [](const auto& d) { return tile::isThread(d.level) ? d.size.constValue() : int64_t{1}; });
}

int64_t threadsOfBlock(const RowsJudgement& j) {
  return threadsOf(j.digits.m) * threadsOf(j.digits.k) * threadsOf(j.digits.n);
}

// The registers of a GPU's thread that hold rows. A multiprocessor that runs one block gives each thread its share; rows take half of it.
int64_t rowRegisters(const RowsJudgement& j) {
  return std::min(kMostRegisters, j.device.gpu.registers / threadsOfBlock(j)) / 2;
}

IntExpr parts(const RowsJudgement& j) { return productOf(j.digits.grid, &tile::GridDim::count); }

std::optional<std::string> losesStructure(const RowsJudgement& part, const RowsJudgement& joint) {
  if (part.digits.split && !joint.digits.split) {
    return "the joint kernel would not split its reduction";
  }
  if (part.digits.scratchRow && !joint.digits.scratchRow) {
    return "the joint kernel would sum its columns in narrow strips, not in whole rows";
  }
  if (part.digits.pipelineRows > 0 && joint.digits.pipelineRows == 0) {
    return "the joint kernel would not pipeline its rows";
  }
  if (rowsInRegisters(part) && keepsRows(part) && !rowsInRegisters(joint)) {
    return "its rows would not stay in registers in the joint kernel";
  }
  const IntExpr before = parts(part);
  const IntExpr after = parts(joint);
  const bool hasEnough = !joint.coordinates.columns.empty();  // see refuseColumns
  if (!hasEnough && isKnownExtent(before) && isKnownExtent(after) && usualExtent(before) > 2 * usualExtent(after)) {
    return fmt::format("it has {} parallel parts, the joint kernel has {}", usualExtent(before), usualExtent(after));
  }
  return std::nullopt;
}

// The innermost elements of a tensor are neighbours along the vector axis.
bool runsAlong(const RowsJudgement& j, const TensorView* tensor) {
  auto index = j.coordinates.index.find(tensor->id());
  const std::vector<int64_t>& n = j.choices[0].n;
  const std::vector<IntExpr> shape = tensor->shape();
  for (int64_t d = std::ssize(shape) - 1; index != j.coordinates.index.end() && !n.empty() && d >= 0; d--) {
    if (!shape[d].isConst(1)) {
      return runsOver(index->second[d], n.back());
    }
  }
  return false;
}

std::optional<std::string> crossesRows(const RowsJudgement& part, const RowsJudgement& joint) {
  for (const TensorView* tv : tensorsOf(part.group)) {
    if (runsAlong(part, tv) && !runsAlong(joint, tv)) {
      return fmt::format("{} would be accessed across its rows", tv->toString());
    }
  }
  return std::nullopt;
}

std::optional<std::string> lacksRoom(const RowsJudgement& a, const RowsJudgement& b, const RowsJudgement& joint) {
  const size_t streams = std::ranges::count_if(
      tensorsOf(joint.group), [&](const TensorView* tv) { return usualElements(*tv) * 8 >= joint.positions; });
  const bool onCpu = joint.device.target == tile::Target::Cpu;
  const int64_t cached = onCpu ? joint.device.l2Bytes : joint.device.lastCacheBytes / 4;
  const size_t most = joint.cost.bytes <= cached ? kMaxKernelTensors : kMaxMemoryStreams;
  if (streams > most) {
    return fmt::format("{} tensors are more than the limit of one loop, {}", streams, most);
  }
  if (!keepsRows(joint)) {
    return std::nullopt;
  }
  if (onCpu) {
    const int64_t room = joint.device.l2Bytes / 2;
    if (rowBytes(joint) > room && rowBytes(a) <= room && rowBytes(b) <= room) {
      return fmt::format("a row of both, {} bytes, does not stay in the cache", rowBytes(joint));
    }
    return std::nullopt;
  }
  const int64_t held = stepWidth(joint.digits.n) * rowInputs(joint);
  const int64_t room = rowRegisters(joint);
  if (rowsInRegisters(joint) && held > room && rowInputs(joint) > std::max(rowInputs(a), rowInputs(b))) {
    return fmt::format("rows of both take {} registers of a thread, at most {} are available for them", held, room);
  }
  return std::nullopt;
}

// Scratch of a thread for sums of columns: a row for each level of blocks of rows.
int64_t columnBytes(const RowsJudgement& j) {
  const int64_t levels = std::ranges::count(j.digits.m, tile::Level::Serial, &tile::Builder::DigitSpec::level);
  return sumOf(reductionsOf(j.group), [&](const Expr* e) {
    const bool isOfColumns = j.coordinates.columns.contains(e->output()->id());
    return isOfColumns ? levels * rowElements(j) * dataTypeSize(accumulateType(e->input(0)->dtype())) : 0;
  });
}

// What a GPU lacks: registers for a row, the sums and what all rows share, or rows for its threads, since each block takes some.
std::string lackOnGpu(const RowsJudgement& j) {
  if (!rowsInRegisters(j)) {
    return "rows and sums that stay in registers";
  }
  const int64_t threads = productOf(j.digits.grid, &tile::GridDim::count).constValue() * threadsOfBlock(j);
  if (const int64_t few = j.device.gpu.processors * j.device.gpu.threads / kBusyShare; threads < few) {
    return fmt::format("rows for {} threads of the GPU, they are enough for {}", few, threads);
  }
  return "";
}

// What a kernel of sums of rows needs to sum columns too, if it lacks something. Sizes without bounds would bound neither the scratch rows
// of each thread nor the parts, whose sums the last one adds up.
std::string lackForColumns(const RowsJudgement& j) {
  const KernelAxes& axes = j.choices[0];
  const bool onGpu = j.device.target == tile::Target::Gpu;
  if (onGpu && !(axes.M.isConst() && axes.N.isConst())) {
    return "constant sizes";
  }
  if (!isKnownExtent(axes.M) || !isKnownExtent(axes.N)) {
    return "sizes with known bounds";
  }
  if (usualExtent(axes.M) < kManyRows) {
    return fmt::format("at least {} rows", kManyRows);
  }
  if (usualExtent(axes.N) <= kNarrowRow) {
    return fmt::format("rows of more than {} elements", kNarrowRow);
  }
  if (!axes.K.isConst(1)) {
    return "rows of dims that are neighbours";
  }
  if (onGpu) {
    if (std::string lack = lackOnGpu(j); !lack.empty()) {
      return lack;
    }
  } else if (!j.digits.scratchRow) {
    return "rows that are not pipelined";
  } else if (const int64_t room = j.device.l2Bytes / 2; rowBytes(j) + columnBytes(j) > room) {
    return fmt::format("{} bytes of cache for a row and the sums, more than {}", rowBytes(j) + columnBytes(j), room);
  }
  const bool mayCross = j.choices.size() > 1;  // only rows of several dims
  return mayCross && !runsThrough(j.writeChoice(0).program, "n") ? "operands that all lie along the rows" : "";
}

}  // namespace

std::optional<std::string> refuseFewRows(const RowsJudgement& j) {
  const int64_t rows = usualExtent(j.choices[0].M);
  if (j.device.target != tile::Target::Cpu || !keepsRows(j) || !j.choices[0].innerReduced || rows >= kFewRows ||
      rowBytes(j) <= j.device.l2Bytes / 2) {
    return std::nullopt;
  }
  return fmt::format("{} rows of {} bytes are shared out to threads in parts", rows, rowBytes(j));
}

std::optional<std::string> refuseColumns(const RowsJudgement& j) {
  const std::set<int64_t>& columns = j.coordinates.columns;
  const std::string lack = columns.empty() ? std::string() : lackForColumns(j);
  if (lack.empty()) {
    return std::nullopt;
  }
  const std::vector<const Expr*> all = reductionsOf(j.group);
  const auto isOfColumns = [&](const Expr* e) { return columns.contains(e->output()->id()); };
  const auto other = std::ranges::find(all, !isOfColumns(all[0]), isOfColumns);
  return fmt::format("{} reduces other dims than the reductions before it, and one kernel of both needs {}",
                     (*other)->tensorOutput()->toString(), lack);
}

std::optional<std::string> RowsJudgement::refuseParts(const Judgement& first, const Judgement& second) const {
  const auto* a = dynamic_cast<const RowsJudgement*>(&first);
  const auto* b = dynamic_cast<const RowsJudgement*>(&second);
  if (a == nullptr || b == nullptr) {
    return "one of them is no kernel of rows";
  }
  std::optional<std::string> reason = losesStructure(*a, *this);
  reason = reason ? reason : losesStructure(*b, *this);
  reason = reason ? reason : crossesRows(*a, *this);
  reason = reason ? reason : crossesRows(*b, *this);
  return reason ? reason : lacksRoom(*a, *b, *this);
}

}  // namespace meshfuse
