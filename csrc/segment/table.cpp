#include "segment/table.h"

#include <utility>

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
#include "segment/recompute_large.h"

namespace meshfuse {

namespace {

const PassRow<Fusion, LocalContext> kPasses[] = {
    {"fold-scalars", foldScalars, "first: ops that later passes copy then read a constant instead of a scalar op"},
    {"memory-orders", memoryOrders,
     "while library calls are still the ops that the user wrote; the layouts that it adds may need copies"},
    {"contiguous-operands", contiguousOperands,
     "needs layouts of inputs and results; later passes treat its copies like other ops"},
    {"decompose-contractions", decomposeContractions,
     "before cheap ops are duplicated, because it adds some; afterwards every contraction is a library call"},
    {"recompute-large", recomputeLarge,
     "when all ops that kernels compute exist; the broadcasts that its copies read too are duplicated next"},
    {"duplicate-cheap", duplicateCheap, "when all ops that kernels compute exist"},
    {"fold-transposes", foldTransposes,
     "last: a permute becomes a view only if all its readers are library calls that accept the view"},
};

}  // namespace

std::span<const PassRow<Fusion, LocalContext>> localPasses() { return kPasses; }

void runLocalPasses(Fusion& fusion, LocalContext& context) {
  PassOptions options = PassOptions::fromEnvironment();
  options.verify = context.verify;
  const PassRunner<Fusion, LocalContext> runner{
      .stage = "segment",
      .print = [&](const Fusion& f) { return toText(f, context); },
      .verify = [](const Fusion& f) { return verify(f); },
      .options = std::move(options),
      .reproduce = [](std::string_view pass,
                      const std::string& text) { return writeReproducer(passNames(localPasses()), pass, text); },
  };
  runner.run(localPasses(), fusion, context);
}

}  // namespace meshfuse
