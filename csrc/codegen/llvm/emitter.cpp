#include "codegen/llvm/emitter.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "tile/coarse_values.h"

namespace meshfuse {

using namespace llvm;
using tile::kNone;
using tile::Level;
using tile::Memory;
using tile::StmtKind;
using tile::ValueId;
using tile::ValueKind;

constexpr int64_t kScratchAlignment = 64;

bool CpuTarget::has(std::string_view feature) const {
  return fmt::format(",{},", features).find(fmt::format(",+{},", feature)) != std::string::npos;
}

void emitCpu(const tile::Program& program, const CpuTarget& target, Module& module) {
  invariant(program.target == tile::Target::Cpu, "[emit] kernel {} is a program for a GPU, expected one for a CPU",
            program.name);
  IRBuilder<> builder(module.getContext());
  Emitter(program, target, module, builder).emitKernel();
  Emitter(program, target, module, builder).emitScratchBytes();
}

Emitter::Emitter(const tile::Program& program, const CpuTarget& target, Module& module, IRBuilderBase& builder)
    : p_(program),
      target_(target),
      module_(module),
      ctx_(module.getContext()),
      b_(builder),
      points_(builder, target,
              [this](PointOp op, DataType dtype, std::span<Value* const> operands) {
                return callScalar(op, dtype, operands);
              }),
      coarse_(tile::coarseValues(program)),
      eager_(program.values.size(), false),
      home_(program.values.size(), -1),
      pieces_(program.values.size()) {
  int64_t machineLanes = target.vectorBytes / 4;
  for (const tile::Space& space : p_.spaces) {
    SpaceInfo info;
    info.digits = tile::digitsOf(space);
    invariant(info.digits.size() <= Position::kMostDigits,
              "[emit] kernel {}: space {} has {} register digits, at most {} are supported", p_.name, space.name,
              info.digits.size(), Position::kMostDigits);
    for (const tile::DigitRef& ref : info.digits) {
      const tile::Digit& d = space.axes[ref.axis].digits[ref.digit];
      invariant(tile::isRegister(d.level), "[emit] kernel {}: digit {} is on a level that a CPU does not have", p_.name,
                d.symbol);
      int64_t size = d.size.constValue();
      if (d.level == Level::Vector) {
        info.vector = std::ssize(info.radix);
        info.lanes = std::min<int64_t>(size, machineLanes);
        info.vectorPieces = size / info.lanes;
        size = info.vectorPieces;
      }
      info.radix.push_back(size);
    }
    spaces_.push_back(std::move(info));
  }
}

// -- the frame --------------------------------------------------------------------------------------------------------

Function* Emitter::makeFunction(std::string_view name, Type* result, std::vector<Type*> parameters) {
  fn_ = Function::Create(FunctionType::get(result, parameters, false), Function::ExternalLinkage, std::string(name),
                         module_);
  fn_->addFnAttr(Attribute::NoUnwind);
  if (!target_.cpu.empty()) {
    fn_->addFnAttr("target-cpu", target_.cpu);
  }
  fn_->addFnAttr("target-features", target_.features);
  // Without these 512-bit vectors are cut in half on most machines that have them.
  std::string width = std::to_string(target_.vectorBytes * 8);
  fn_->addFnAttr("prefer-vector-width", width);
  fn_->addFnAttr("min-legal-vector-width", width);
  b_.SetInsertPoint(BasicBlock::Create(ctx_, "entry", fn_));
  return fn_;
}

void Emitter::bindArguments(Function* fn) {
  uint64_t slot = 0;
  auto next = [&](Type* type) {
    return b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), fn->getArg(0), slot++));
  };
  for (const tile::TensorParam& t : p_.tensors) {
    tensors_.push_back(t.memory == Memory::Scratch ? nullptr : next(b_.getPtrTy()));
  }
  for (const tile::SizeParam& s : p_.sizes) {
    bound_[s.name] = {next(b_.getInt64Ty()), 1, 0};
  }
  for (const tile::ScalarParam& s : p_.scalars) {
    Value* slot = next(b_.getInt64Ty());
    Value* bits = s.dtype == DataType::Bool ? b_.CreateICmpNE(slot, b_.getInt64(0))
                                            : b_.CreateTrunc(slot, b_.getIntNTy(bitWidth(s.dtype)));
    scalars_.push_back(b_.CreateBitCast(bits, elementType(s.dtype)));
  }
}

// Byte offsets of the scratch tensors, in order, then the total. A piece of slack after each lets a full vector begin at its
// last element.
std::vector<IntExpr> Emitter::scratchOffsets() const {
  std::vector<IntExpr> offsets{0};
  for (const tile::TensorParam& t : p_.tensors) {
    if (t.memory == Memory::Scratch) {
      IntExpr last = sumOf(indices(t.extents), [&](int64_t k) { return (t.extents[k] - 1) * t.strides[k]; });
      IntExpr bytes = (last + 1) * dataTypeSize(t.dtype) + 2 * kScratchAlignment;
      offsets.push_back(offsets.back() + ceilDiv(bytes, kScratchAlignment) * kScratchAlignment);
    }
  }
  return offsets;
}

void Emitter::emitScratchBytes() {
  Function* fn = makeFunction(kScratchBytesSymbol, b_.getInt64Ty(), {b_.getPtrTy()});
  bindArguments(fn);
  b_.CreateRet(scalar(scratchOffsets().back()));
}

void Emitter::emitKernel() {
  Function* fn =
      makeFunction(kKernelSymbol, b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty(), b_.getPtrTy()});
  bindArguments(fn);
  std::vector<IntExpr> offsets = scratchOffsets();
  size_t scratch = 0;
  for (int64_t i = 0; i < std::ssize(p_.tensors); i++) {
    if (p_.tensors[i].memory == Memory::Scratch) {
      tensors_[i] = b_.CreateInBoundsGEP(b_.getInt8Ty(), fn->getArg(3), scalar(offsets[scratch++]));
    }
  }
  int64_t blocks = 0;
  findEager(p_.body, 0, blocks);
  for (int64_t id : indices(p_.values)) {  // operands in other blocks, and what depends on the order of statements
    const tile::Value& v = p_.values[id];
    bool ordered = v.kind == ValueKind::Load && p_.tensors[v.param].memory != Memory::Input;
    eager_[id] = eager_[id] || ordered || v.kind == ValueKind::Reduce || v.kind == ValueKind::Convert;
    for (ValueId operand : v.operands) {
      noteUse(operand, home_[id]);
    }
    noteUse(v.mask, home_[id]);
    for (const tile::Index& i : v.index) {
      noteUse(i.tile, home_[id]);
    }
  }
  partLoop();
}

void Emitter::noteUse(ValueId id, int64_t block) {
  if (id != kNone && home_[id] != block) {
    eager_[id] = true;
  }
}

// Numbers the blocks and notes values that a statement of another block uses: those are evaluated where they are defined, all
// others inside their first consumer.
void Emitter::findEager(const std::vector<tile::Stmt>& block, int64_t number, int64_t& blocks) {
  for (const tile::Stmt& s : block) {
    if ((s.kind == StmtKind::Define || s.kind == StmtKind::Keep) && home_[s.value] < 0) {
      home_[s.value] = number;
    }
    noteUse(s.value, number);
    noteUse(s.mask, number);
    for (const tile::Index& i : s.index) {
      noteUse(i.tile, number);
    }
    int64_t inner = s.body.empty() && s.carried.empty() ? number : ++blocks;
    for (const tile::Carried& c : s.carried) {
      noteUse(c.init, number);
      home_[c.carry] = inner;
      home_[c.result] = number;
    }
    if (inner != number) {
      findEager(s.body, inner, blocks);
    }
    for (const tile::Carried& c : s.carried) {
      noteUse(c.next, inner);
    }
  }
}

void Emitter::partLoop() {
  auto coveredOf = [](const tile::Axis& axis) {
    auto part = std::ranges::find(axis.digits, Level::Part, &tile::Digit::level);
    if (part == axis.digits.end()) {
      return axis.bound;
    }
    bool whole = provenLessEqual(part->size * part->stride, axis.bound);
    return whole ? part->stride : part->size == ceilDiv(axis.bound, part->stride) ? IntExpr(1) : IntExpr(0);
  };
  inside_ = mapped(p_.spaces, [&](const tile::Space& space) {
    return mapped(space.axes, [&](const tile::Axis& axis) { return Inside{coveredOf(axis)}; });
  });
  Value* begin = fn_->getArg(1);
  Value* end = fn_->getArg(2);
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* body = BasicBlock::Create(ctx_, "part", fn_);
  BasicBlock* after = BasicBlock::Create(ctx_, "done", fn_);
  Instruction* entry = b_.CreateCondBr(b_.CreateICmpSLT(begin, end), body, after);
  b_.SetInsertPoint(body);
  PHINode* part = phi(begin, before);
  enterScope(entry);
  bindParts(part);
  block(p_.body);
  Value* next = b_.CreateNSWAdd(part, b_.getInt64(1));
  part->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), body, after);
  leaveScope();
  b_.SetInsertPoint(after);
  if (streams_) {
    b_.CreateIntrinsic(Intrinsic::x86_sse_sfence, {}, {});
  }
  b_.CreateRetVoid();
}

// The last grid dim counts fastest.
void Emitter::bindParts(Value* part) {
  for (int64_t d = std::ssize(p_.grid) - 1; d >= 0; d--) {
    Value* coordinate = part;
    if (d > 0) {
      Value* count = scalar(p_.grid[d].count);
      coordinate = b_.CreateURem(part, count);
      part = b_.CreateUDiv(part, count);
    }
    bound_[p_.grid[d].symbol] = {coordinate, 1, 1};
  }
}

PHINode* Emitter::phi(Value* first, BasicBlock* before) {
  PHINode* phi = b_.CreatePHI(first->getType(), 2);
  phi->addIncoming(first, before);
  return phi;
}

void Emitter::enterScope(Instruction* entry) { scopes_.emplace_back().entry = entry; }

void Emitter::leaveScope() {
  for (ValueId id : scopes_.back().evaluated) {
    pieces_[id].clear();
  }
  scopes_.pop_back();
}

// -- statements -------------------------------------------------------------------------------------------------------

void Emitter::block(const std::vector<tile::Stmt>& statements) {
  for (const tile::Stmt& s : statements) {
    statement(s);
  }
}

void Emitter::statement(const tile::Stmt& s) {
  switch (s.kind) {
    case StmtKind::Define:
      if (eager_[s.value]) {
        evaluate(s.value);
      }
      return;
    case StmtKind::Keep:
      return evaluate(s.value);
    case StmtKind::Store:
      return store(s);
    case StmtKind::Prefetch:
      return prefetch(s);
    case StmtKind::For:
      return loop(s);
    case StmtKind::If:
      return conditional(s);
    case StmtKind::LastArriver:
      return lastArriver(s);
  }
}

void Emitter::when(Value* condition, std::string_view name, const std::function<void(Instruction*)>& body) {
  BasicBlock* then = BasicBlock::Create(ctx_, name, fn_);
  BasicBlock* after = BasicBlock::Create(ctx_, "", fn_);
  Instruction* entry = b_.CreateCondBr(condition, then, after);
  b_.SetInsertPoint(then);
  body(entry);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void Emitter::guarded(Value* condition, const std::vector<tile::Stmt>& body) {
  when(condition, "if", [&](Instruction* entry) {
    enterScope(entry);
    block(body);
    leaveScope();
  });
}

void Emitter::conditional(const tile::Stmt& s) {
  Condition c;
  for (const tile::Pred& p : s.where) {
    if (!c.never) {
      addComparison(c, inDigits(p.rhs - p.lhs, s.space), 0, 1);
    }
  }
  if (!c.never) {
    guarded(c.uniform == nullptr ? b_.getTrue() : c.uniform, s.body);
  }
}

// The ticket orders this worker's stores before it and the others' before the body; streaming stores need a fence of their own.
void Emitter::lastArriver(const tile::Stmt& s) {
  Value* counter = s.index.empty() ? tensors_[s.param] : pointer(s.param, offsetOf(s.param, s.index, s.space).rest);
  if (streams_) {
    b_.CreateIntrinsic(Intrinsic::x86_sse_sfence, {}, {});
  }
  Value* last = b_.CreateTrunc(scalar(arrivals(p_, s) - 1), b_.getInt32Ty());
  Value* ticket =
      b_.CreateAtomicRMW(AtomicRMWInst::UIncWrap, counter, last, Align(4), AtomicOrdering::SequentiallyConsistent);
  guarded(b_.CreateICmpEQ(ticket, last), s.body);
}

}  // namespace meshfuse
