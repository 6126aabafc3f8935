#include "device/cpu/orc/object_compiler.h"

#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/RegAllocRegistry.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <mutex>

#include "base/error.h"

namespace meshfuse {

using namespace llvm;

namespace {

// Register allocation is chosen by options of the whole process; there is no other way to have it at the lowest level.
void prepareLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
    auto& options = cl::getRegisteredOptions();
    if (auto found = options.find("optimize-regalloc"); found != options.end()) {
      static_cast<cl::opt<cl::boolOrDefault>*>(found->second)->setValue(cl::BOU_TRUE);
    }
    RegisterRegAlloc::setDefault(static_cast<RegisterRegAlloc::FunctionPassCtor>(createBasicRegisterAllocator));
  });
}

}  // namespace

struct ObjectCompiler::State {
  CpuTarget target;
  std::unique_ptr<TargetMachine> machine;

  std::unique_ptr<Module> emit(const tile::Program& program, LLVMContext& context) {
    auto module = std::make_unique<Module>("kernel", context);
    module->setDataLayout(machine->createDataLayout());
    module->setTargetTriple(machine->getTargetTriple().str());
    emitCpu(program, target, *module);
    return module;
  }

  std::string generate(const tile::Program& program, CodeGenFileType type) {
    LLVMContext context;
    std::unique_ptr<Module> module = emit(program, context);
    SmallVector<char, 0> bytes;
    raw_svector_ostream stream(bytes);
    legacy::PassManager passes;
    bool refused = machine->addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true);
    invariant(!refused, "[llvm] this LLVM cannot write objects for {}", machine->getTargetTriple().str());
    passes.run(*module);
    return {bytes.data(), bytes.size()};
  }
};

ObjectCompiler::ObjectCompiler(const CpuTarget& target) : state_(std::make_unique<State>()) {
  prepareLlvm();
  state_->target = target;
  std::string triple = sys::getProcessTriple();
  std::string error;
  const Target* llvmTarget = TargetRegistry::lookupTarget(triple, error);
  invariant(llvmTarget != nullptr, "[llvm] no code generator for {}: {}", triple, error);
  TargetOptions options;
  options.EnableFastISel = false;
  state_->machine.reset(llvmTarget->createTargetMachine(triple, target.cpu, target.features, options, Reloc::PIC_,
                                                        CodeModel::Small, CodeGenOptLevel::None, /*JIT=*/true));
  state_->machine->setFastISel(false);
  state_->machine->setO0WantsFastISel(false);
}

ObjectCompiler::~ObjectCompiler() = default;

std::string ObjectCompiler::object(const tile::Program& program) {
  return state_->generate(program, CodeGenFileType::ObjectFile);
}

std::string ObjectCompiler::assemblyText(const tile::Program& program) {
  return state_->generate(program, CodeGenFileType::AssemblyFile);
}

std::string ObjectCompiler::irText(const tile::Program& program) {
  LLVMContext context;
  std::unique_ptr<Module> module = state_->emit(program, context);
  std::string text;
  raw_string_ostream stream(text);
  module->print(stream, nullptr);
  return text;
}

std::string llvmVersion() { return LLVM_VERSION_STRING; }

}  // namespace meshfuse
