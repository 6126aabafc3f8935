// Right products of the simulated cuBLASLt, and for each wrong use of memory a product that is reported beside one that is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "simgpu/products.h"

namespace meshfuse {
namespace {

using cublaslt::ElementType;
using cublaslt::LayoutAttribute;
using cublaslt::PreferenceAttribute;
using cublaslt::ProductAttribute;
using cublaslt::ReductionScheme;
using cublaslt::Status;
using cuda::DevicePointer;
using cuda::Stream;

constexpr const char* kProductRace = "cublasLtMatmul to 3 by 4.*nothing orders the two";

void expectProduct(Simulated& gpu, const ProductShape& shape) {
  Multiplication x(gpu, shape);
  const Stream stream = gpu.stream();
  x.expectMultiplied(stream);
  gpu.expect(gpu.streamSynchronize(stream), "synchronize");
  x.expectRight();
}

// -- right products ---------------------------------------------------------------------------------------------------

using Types = std::pair<ElementType, ElementType>;

class SimulatedProducts : public testing::TestWithParam<Types> {};

TEST_P(SimulatedProducts, AreThoseOfPlainLoops) {
  const auto [in, out] = GetParam();
  expectFine([in = in, out = out](Simulated& gpu) {
    for (int i = 0; i < 16; i++) {
      const bool hasBias = (i & 4) != 0 && out != ElementType::Double;
      expectProduct(gpu, {.in = in,
                          .out = out,
                          .transposeA = (i & 1) != 0,
                          .transposeB = (i & 2) != 0,
                          .hasBias = hasBias,
                          .alpha = 2,
                          .beta = i < 8 ? 0.0 : 1.0,
                          .gap = i % 3 == 0 ? size_t{2} : 0});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, SimulatedProducts,
                         testing::Values(Types{ElementType::Float, ElementType::Float},
                                         Types{ElementType::Half, ElementType::Half},
                                         Types{ElementType::BFloat16, ElementType::BFloat16},
                                         Types{ElementType::Double, ElementType::Double},
                                         Types{ElementType::Half, ElementType::Float},
                                         Types{ElementType::BFloat16, ElementType::Float}));

TEST(SimulatedProduct, WithAnActivation) {
  expectFine([](Simulated& gpu) {
    for (const auto activation : {cublaslt::Epilogue::Relu, cublaslt::Epilogue::Gelu}) {
      for (const bool hasBias : {false, true}) {
        for (const double beta : {0.0, 1.0}) {
          expectProduct(gpu, {.hasBias = hasBias, .activation = activation, .beta = beta, .batches = 2, .gap = 1});
        }
      }
    }
    expectProduct(gpu, {.in = ElementType::Half, .out = ElementType::Half, .activation = cublaslt::Epilogue::Relu});
    expectProduct(gpu, {.in = ElementType::Half, .out = ElementType::Float, .activation = cublaslt::Epilogue::Gelu});
  });
}

// gelu of 1, and of 1 + 2^-11, which half does not have: rounded first, it would be 1.
TEST(SimulatedProduct, RoundsAfterTheActivation) {
  expectFine([](Simulated& gpu) {
    const auto half = ElementType::Half;
    const auto geluOf = [&](double x, double y) {
      Multiplication p(gpu, {.m = 1, .n = 1, .k = 2, .in = half, .out = half, .activation = cublaslt::Epilogue::Gelu});
      p.put(p.a.at, bytesOfValue(x, half) + bytesOfValue(y, half));
      p.put(p.b.at, bytesOfValue(1, half) + bytesOfValue(1, half));
      const Stream stream = gpu.stream();
      p.expectMultiplied(stream);
      gpu.expect(gpu.streamSynchronize(stream), "synchronize");
      uint16_t got = 0;
      gpu.expect(gpu.copyToHost(&got, p.d.at, sizeof got), "cuMemcpyDtoH");
      return got;
    };
    require(geluOf(1, 0) == 0x3abb, "0.841192 is rounded to 0.841309");
    require(geluOf(1, 0x1p-11) == 0x3abc, "0.841721 is rounded to 0.841797");
    require(geluOf(8, 0) == 0x4800, "8 stays");
    require(geluOf(-8, 0) == 0x8000, "-8 becomes a zero");
  });
}

TEST(SimulatedProduct, ReluLosesNaN) {
  expectFine([](Simulated& gpu) {
    Multiplication p(gpu, {.m = 1, .n = 1, .k = 1, .activation = cublaslt::Epilogue::Relu});
    p.put(p.a.at, bytesOfValue(NAN, ElementType::Float));
    p.put(p.b.at, bytesOfValue(1, ElementType::Float));
    const Stream stream = gpu.stream();
    p.expectMultiplied(stream);
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    float got = 1;
    gpu.expect(gpu.copyToHost(&got, p.d.at, sizeof got), "cuMemcpyDtoH");
    require(got == 0, "relu of NaN");
  });
}

TEST(SimulatedProduct, OfBatches) {
  expectFine([](Simulated& gpu) {
    for (const bool isAShared : {false, true}) {
      for (const bool isInPlace : {false, true}) {
        expectProduct(gpu, {.transposeA = true,
                            .hasBias = true,
                            .beta = 1,
                            .batches = 3,
                            .isAShared = isAShared,
                            .isInPlace = isInPlace,
                            .gap = 1});
      }
    }
  });
}

// x + y + z z; without z, x + y
void expectRounded(Simulated& gpu, ElementType type, double x, double y, double z, uint16_t bits,
                   ReductionScheme scheme = ReductionScheme::InComputeType) {
  Multiplication p(gpu, {.m = 1, .n = 1, .k = 3, .in = type, .out = type});
  p.prefer(PreferenceAttribute::ReductionSchemes, scheme);
  p.put(p.a.at, bytesOfValue(x, type) + bytesOfValue(y, type) + bytesOfValue(z, type));
  p.put(p.b.at, bytesOfValue(1, type) + bytesOfValue(1, type) + bytesOfValue(z == 0 ? 1 : z, type));
  const Stream stream = gpu.stream();
  p.expectMultiplied(stream);
  gpu.expect(gpu.streamSynchronize(stream), "synchronize");
  uint16_t got = 0;
  gpu.expect(gpu.copyToHost(&got, p.d.at, sizeof got), "cuMemcpyDtoH");
  require(got == bits, ("rounds to " + std::to_string(bits) + ", not to " + std::to_string(got)).c_str());
}

TEST(SimulatedProduct, RoundsOnceToTheNearest) {
  expectFine([](Simulated& gpu) {
    const auto half = ElementType::Half;
    const auto bfloat16 = ElementType::BFloat16;
    expectRounded(gpu, half, 1, 0x1p-11, 0, 0x3c00);  // half way to the next: to the even one
    expectRounded(gpu, half, 1, 0x3p-11, 0, 0x3c02);
    expectRounded(gpu, half, 1, 0x1p-11, 0x1p-14, 0x3c01);  // more than half way, which a float does not see
    expectRounded(gpu, half, 65504, 15, 0, 0x7bff);
    expectRounded(gpu, half, 65504, 16, 0, 0x7c00);  // infinite
    expectRounded(gpu, half, -65504, -16, 0, 0xfc00);
    expectRounded(gpu, half, -2, 0, 0x1p-12, 0xc000);
    expectRounded(gpu, half, 0, 0, 0x1p-12, 0x0001);  // 2^-24, the least above 0
    expectRounded(gpu, half, 0, 0, 0x1p-13, 0x0000);
    expectRounded(gpu, bfloat16, 1, 0x1p-8, 0, 0x3f80);
    expectRounded(gpu, bfloat16, 1, 0x3p-8, 0, 0x3f82);
    expectRounded(gpu, bfloat16, 1, 0x1p-8, 0x1p-15, 0x3f81);
    expectRounded(gpu, bfloat16, 0x1.fep127, 0x1p119, 0, 0x7f80);
    expectRounded(gpu, bfloat16, 0, 0, 0x1p-65, 0x0008);  // 2^-130: 2^-133 is the least above 0
  });
}

// A program that does not forbid it gets the coarsest sums that the library may give.
TEST(SimulatedProduct, RoundsPartsOfSumsUnlessForbidden) {
  expectFine([](Simulated& gpu) {
    const auto any = ReductionScheme{7};
    expectRounded(gpu, ElementType::Half, 1, 0x1p-11, 0x1p-14, 0x3c00, any);
    expectRounded(gpu, ElementType::BFloat16, 1, 0x1p-8, 0x1p-15, 0x3f80, any);
  });
}

TEST(SimulatedProduct, LargeOnesWantWorkspace) {
  expectFine([](Simulated& gpu) {
    expectProduct(gpu, kLargeProduct);
    Multiplication x(gpu, kLargeProduct);
    for (const uint64_t most : {uint64_t{0}, uint64_t{100}, uint64_t{4096}, uint64_t{1} << 30}) {
      x.prefer(PreferenceAttribute::MostWorkspaceBytes, most);
      expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
      require(x.chosen.workspaceBytes == std::min<uint64_t>(most, 4096), "as much as it is given, 4096 at most");
    }
    Multiplication small(gpu, {});
    expectDone(small.choose(), "cublasLtMatmulAlgoGetHeuristic");
    require(small.chosen.workspaceBytes == 0, "a small product wants none");
  });
}

// -- order ------------------------------------------------------------------------------------------------------------

// A copy to A, the product and a fill of D on three streams
void betweenOtherWork(Simulated& gpu, bool afterCopy, bool beforeFill) {
  Multiplication x(gpu, {});
  const Stream in = gpu.stream();
  const Stream run = gpu.stream();
  const Stream out = gpu.stream();
  const cuda::Event hasA = gpu.event();
  const cuda::Event hasD = gpu.event();
  gpu.expect(gpu.fillAsync(x.a.at, 0, x.a.allocated(), in), "fill");
  gpu.expect(gpu.eventRecord(hasA, in), "record");
  if (afterCopy) {
    gpu.expect(gpu.streamWaitEvent(run, hasA, 0), "wait");
  }
  x.expectMultiplied(run);
  gpu.expect(gpu.eventRecord(hasD, run), "record");
  if (beforeFill) {
    gpu.expect(gpu.streamWaitEvent(out, hasD, 0), "wait");
  }
  gpu.expect(gpu.fillAsync(x.d.at, 0, x.d.allocated(), out), "fill");
  gpu.expect(gpu.contextSynchronize(), "synchronize");
}

TEST(SimulatedProduct, IsOrderedWithOtherWork) {
  expectFine([](Simulated& gpu) { betweenOtherWork(gpu, true, true); });
  expectReport(kProductRace, [](Simulated& gpu) { betweenOtherWork(gpu, false, true); });
  expectReport(kProductRace, [](Simulated& gpu) { betweenOtherWork(gpu, true, false); });
}

void twoWithWorkspace(Simulated& gpu, bool isShared, bool isOrdered) {
  Multiplication x(gpu, kLargeProduct);
  Multiplication y(gpu, kLargeProduct);
  const Stream first = gpu.stream();
  const Stream second = isOrdered ? first : gpu.stream();
  x.expectMultiplied(first);
  if (isShared) {
    y.workspace = x.workspace;
    y.workspaceBytes = x.workspaceBytes;
  }
  y.expectMultiplied(second);
  gpu.expect(gpu.contextSynchronize(), "synchronize");
}

TEST(SimulatedProduct, WorkspaceIsNotShared) {
  expectFine([](Simulated& gpu) { twoWithWorkspace(gpu, false, false); });
  expectFine([](Simulated& gpu) { twoWithWorkspace(gpu, true, true); });
  expectReport("nothing orders the two.*as the workspace", [](Simulated& gpu) { twoWithWorkspace(gpu, true, false); });
}

// -- operands ---------------------------------------------------------------------------------------------------------

// Runs a product after a change.
SimulatedProgram changed(const ProductShape& shape, const std::function<void(Multiplication&)>& change) {
  return [=](Simulated& gpu) {
    Multiplication x(gpu, shape);
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    change(x);
    expectDone(x.multiply(gpu.stream()), "cublasLtMatmul");
    gpu.expect(gpu.contextSynchronize(), "synchronize");
  };
}

TEST(SimulatedProduct, ReadsWhatIsWritten) {
  const auto anew = [](Multiplication& x) { x.a.at = x.gpu.allocate(x.a.allocated()); };
  const auto written = [&](Multiplication& x) {
    anew(x);
    x.write(x.a, 1);
  };
  expectFine(changed({}, written));
  expectReport("reads bytes that nobody has written.*as A", changed({}, anew));
  const auto newC = [](Multiplication& x) { x.c.at = x.gpu.allocate(x.c.allocated()); };
  expectFine(changed({}, newC));  // beta is 0
  expectReport("reads bytes that nobody has written.*as C", changed({.beta = 1}, newC));
}

TEST(SimulatedProduct, WritesItsElementsOnly) {
  const auto readOf = [](size_t bytes) {
    return [=](Simulated& gpu) {
      Multiplication x(gpu, {.gap = 1});
      x.expectMultiplied(gpu.stream());
      gpu.expect(gpu.contextSynchronize(), "synchronize");
      std::string column(bytes, '\0');
      gpu.copyToHost(column.data(), x.d.at, bytes);
    };
  };
  expectFine(readOf(3 * sizeof(float)));
  expectReport("reads bytes that nobody has written, the first at 12 of 16", readOf(4 * sizeof(float)));
}

TEST(SimulatedProduct, OperandsAreAllocated) {
  expectReport("no allocation has the address.*as B",
               changed({}, [](Multiplication& x) { x.gpu.expect(x.gpu.memoryFree(x.b.at), "cuMemFree"); }));
  expectReport("writes bytes 0 to 48 of the 44 bytes of cuMemAlloc.*as D",
               changed({}, [](Multiplication& x) { x.d.at = x.gpu.allocate(x.d.allocated() - sizeof(float)); }));
  expectReport("A is not in the memory of the stream's device",
               changed({}, [](Multiplication& x) { x.a.at += uint64_t{1} << 35; }));
  expectReport("B is larger than the memory of a device", [](Simulated& gpu) {
    Multiplication x(gpu, {});
    x.lt.layoutCreate(&x.bLayout, ElementType::Float, 5, 4, int64_t{1} << 60);
    x.expectMultiplied(gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedProduct, OperandsAreOnTheDevice) {
  expectReport("A is a pointer of the host",
               changed({}, [](Multiplication& x) { x.a.at = reinterpret_cast<DevicePointer>(x.gpu.pinned(64)); }));
  expectReport("the workspace is a pointer of the host", changed(kLargeProduct, [](Multiplication& x) {
                 x.workspace = reinterpret_cast<DevicePointer>(x.gpu.pinned(1024));
                 x.workspaceBytes = 4096;
               }));
  expectReport("alpha is in device memory", [](Simulated& gpu) {
    Multiplication x(gpu, {});
    const float beta = 0;
    const auto at = [](DevicePointer p) { return reinterpret_cast<void*>(p); };
    x.lt.multiply(x.handle, x.product, at(gpu.allocate(4)), at(x.a.at), x.aLayout, at(x.b.at), x.bLayout, &beta,
                  at(x.c.at), x.cLayout, at(x.d.at), x.dLayout, nullptr, nullptr, 0, gpu.stream());
  });
}

TEST(SimulatedProduct, DOverlapsNothingButC) {
  expectFine(changed({.beta = 1, .isInPlace = true}, [](Multiplication&) {}));
  expectReport("writes bytes of D that are also bytes of A", changed({.m = 4}, [](Multiplication& x) {
                 x.d.at = x.a.at;  // D fits: 4 by 4 beside 4 by 5
               }));
  expectReport("writes bytes of D that are also bytes of C", [](Simulated& gpu) {
    Multiplication x(gpu, {.beta = 1, .batches = 2});
    x.d.at = x.c.at;
    x.set(x.cLayout, LayoutAttribute::BatchStride, x.d.batchStride - 1);
    x.expectMultiplied(gpu.stream());
    gpu.contextSynchronize();
  });
  expectReport("writes bytes of D twice", [](Simulated& gpu) {
    Multiplication x(gpu, {.batches = 2});
    x.set(x.dLayout, LayoutAttribute::BatchStride, int64_t{0});
    x.expectMultiplied(gpu.stream());
    gpu.contextSynchronize();
  });
}

// -- alignment and workspace ------------------------------------------------------------------------------------------

// A product whose A begins 16 bytes after a multiple of 256
void withLessAligned(Simulated& gpu, bool isPreferred, size_t offset) {
  Multiplication x(gpu, {});
  x.a.at = gpu.allocate(x.a.allocated() + offset) + offset;
  x.write(x.a, 1);
  if (isPreferred) {
    x.prefer(PreferenceAttribute::AlignmentOfA, uint32_t{16});
  }
  x.expectMultiplied(gpu.stream());
  gpu.expect(gpu.contextSynchronize(), "synchronize");
  x.expectRight();
}

TEST(SimulatedProduct, PointersAreAlignedAsPreferred) {
  expectFine([](Simulated& gpu) { withLessAligned(gpu, true, 16); });
  expectFine([](Simulated& gpu) { withLessAligned(gpu, false, 256); });
  expectReport("A is aligned to 16 bytes, .*for matrices that are aligned to 256",
               [](Simulated& gpu) { withLessAligned(gpu, false, 16); });
  expectReport("A is aligned to 8 bytes, .*for matrices that are aligned to 16",
               [](Simulated& gpu) { withLessAligned(gpu, true, 8); });
}

// The heuristic sees the pointer of the bias that is set.
TEST(SimulatedProduct, TheBiasIsAlignedAsTheHeuristicSawIt) {
  const auto program = [](bool isChosenAfter) {
    return [=](Simulated& gpu) {
      Multiplication x(gpu, {.hasBias = true});
      if (!isChosenAfter) {
        expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
      }
      x.bias = gpu.allocate(16) + 4;
      x.put(x.bias, std::string(12, '\0'));
      x.set(ProductAttribute::BiasPointer, x.bias);
      if (isChosenAfter) {
        expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
      }
      expectDone(x.multiply(gpu.stream()), "cublasLtMatmul");
    };
  };
  expectFine(program(true));
  expectReport("the bias is aligned to 4 bytes", program(false));
}

TEST(SimulatedProduct, WorkspaceIsAsLargeAsSaid) {
  const auto with = [](size_t allocated, size_t said, size_t offset) {
    return changed(kLargeProduct, [=](Multiplication& x) {
      x.workspace = x.gpu.allocate(allocated) + offset;
      x.workspaceBytes = said;
    });
  };
  expectFine(with(4096, 4096, 0));
  expectFine(with(8192, 4096, 256));
  expectReport("not as large as the program says: bytes 0 to 5000 of the 4096 bytes", with(4096, 5000, 0));
  expectReport("the workspace is aligned to 16 bytes, not to 256", with(8192, 4096, 16));
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, kLargeProduct);
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    x.workspace = gpu.allocate(4096);
    x.workspaceBytes = 4095;
    require(x.multiply(gpu.stream()) == Status::InvalidValue, "the algorithm wants more");
  });
}

}  // namespace
}  // namespace meshfuse
