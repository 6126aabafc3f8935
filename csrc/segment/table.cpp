#include "segment/table.h"

#include "base/reproducer.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "segment/contiguous_operands.h"
#include "segment/decompose_contractions.h"
#include "segment/duplicate_cheap.h"
#include "segment/fold_scalars.h"
#include "segment/fold_transposes.h"
#include "segment/local_context.h"
#include "segment/memory_orders.h"

namespace meshfuse {

namespace {

const PassRow<Fusion, LocalContext> kPasses[] = {
    {"fold-scalars", foldScalars, "first: ops that are copied later then copy a constant, not a reader of a scalar"},
    {"memory-orders", memoryOrders,
     "while library calls still are what the user wrote; the layouts it adds may need copies"},
    {"contiguous-operands", contiguousOperands,
     "needs layouts of inputs and results: its copies are ops like others for what follows"},
    {"decompose-contractions", decomposeContractions,
     "before cheap ops are duplicated: it makes some; afterwards every contraction is a library call"},
    {"duplicate-cheap", duplicateCheap, "when all ops are there that kernels compute"},
    {"fold-transposes", foldTransposes,
     "last: a permute is a view only if its readers are all there, and library calls also of the view"},
};

}  // namespace

std::span<const PassRow<Fusion, LocalContext>> localPasses() { return kPasses; }

void runLocalPasses(Fusion& fusion, LocalContext& context) {
  const PassRunner<Fusion, LocalContext> runner{
      .stage = "segment",
      .print = [&](const Fusion& f) { return toText(f, context); },
      .verify = [](const Fusion& f) { return verify(f); },
      .reproduce = [](std::string_view pass,
                      const std::string& text) { return writeReproducer(passNames(localPasses()), pass, text); },
  };
  runner.run(localPasses(), fusion, context);
}

}  // namespace meshfuse
