// What the simulated cuBLASLt answers and refuses, call by call.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "simgpu/products.h"

namespace meshfuse {
namespace {

using cublaslt::ComputeType;
using cublaslt::ElementType;
using cublaslt::Epilogue;
using cublaslt::LayoutAttribute;
using cublaslt::PreferenceAttribute;
using cublaslt::ProductAttribute;
using cublaslt::Status;
using cuda::DevicePointer;

TEST(SimulatedProductCalls, TheVersionIsThatOfNoLibrary) {
  expectFine([](Simulated&) {
    const CublasLtSimulated lt;
    require(lt.version() == 139900, "the version");
    for (const int status : {0, 1, 3, 7, 8, 13, 14, 15, 99}) {
      require(std::strlen(lt.statusString(static_cast<Status>(status))) > 0, "each status has a text");
    }
  });
}

TEST(SimulatedProductCalls, AHandleIsThatOfTheCurrentDevice) {
  expectFine([](Simulated& gpu) {
    const CublasLtSimulated lt;
    cublaslt::Handle handle = nullptr;
    require(lt.create(nullptr) == Status::InvalidValue, "a place for the handle is needed");
    cuda::Context context = nullptr;
    gpu.expect(gpu.contextPop(&context), "cuCtxPopCurrent");
    require(lt.create(&handle) == Status::NotInitialized, "no context is current");
    gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
    expectDone(lt.create(&handle), "cublasLtCreate");
    expectDone(lt.destroy(handle), "cublasLtDestroy");
    require(lt.destroy(handle) == Status::NotInitialized, "the handle is destroyed");
    Multiplication x(gpu, {});
    std::swap(x.handle, handle);
    require(x.choose() == Status::NotInitialized, "the handle is destroyed");
    require(x.multiply(gpu.stream()) == Status::NotInitialized, "the handle is destroyed");
  });
}

TEST(SimulatedProductCalls, AHandleServesItsDevice) {
  setenv("SIMGPU_DEVICES", "2", 1);
  const auto program = [](bool isOwn) {
    return [=](Simulated& gpu) {
      cuda::Context second = nullptr;
      gpu.expect(gpu.primaryContextRetain(&second, 1), "cuDevicePrimaryCtxRetain");
      const CublasLtSimulated lt;
      cublaslt::Handle handle = nullptr;
      expectDone(lt.create(&handle), "cublasLtCreate");
      gpu.expect(gpu.contextPush(second), "cuCtxPushCurrent");
      Multiplication x(gpu, {});
      if (!isOwn) {
        x.handle = handle;
      }
      x.expectMultiplied(gpu.stream());
    };
  };
  expectFine(program(true));
  expectReport("the handle was made for device 0, but device 1 is current", program(false));
  expectReport("A is not in the memory of the stream's device", [](Simulated& gpu) {
    const DevicePointer ofTheFirst = gpu.allocate(60);
    cuda::Context second = nullptr;
    gpu.expect(gpu.primaryContextRetain(&second, 1), "cuDevicePrimaryCtxRetain");
    gpu.expect(gpu.contextPush(second), "cuCtxPushCurrent");
    Multiplication x(gpu, {});
    x.a.at = ofTheFirst;
    x.expectMultiplied(gpu.stream());
    gpu.contextSynchronize();
  });
  unsetenv("SIMGPU_DEVICES");
}

TEST(SimulatedProductCalls, DestroyedObjectsAreRefused) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    expectDone(x.lt.layoutDestroy(x.bLayout), "cublasLtMatrixLayoutDestroy");
    require(x.lt.layoutDestroy(x.bLayout) == Status::InvalidValue, "the layout is destroyed");
    const int32_t batches = 1;
    require(x.lt.layoutSet(x.bLayout, LayoutAttribute::BatchCount, &batches, 4) == Status::InvalidValue,
            "the layout is destroyed");
    require(x.choose() == Status::InvalidValue, "the layout is destroyed");
    require(x.multiply(gpu.stream()) == Status::InvalidValue, "the layout is destroyed");
    Multiplication y(gpu, {});
    expectDone(y.lt.preferenceDestroy(y.preference), "cublasLtMatmulPreferenceDestroy");
    require(y.lt.preferenceDestroy(y.preference) == Status::InvalidValue, "the preference is destroyed");
    require(y.choose() == Status::InvalidValue, "the preference is destroyed");
    Multiplication z(gpu, {});
    expectDone(z.choose(), "cublasLtMatmulAlgoGetHeuristic");
    expectDone(z.lt.productDestroy(z.product), "cublasLtMatmulDescDestroy");
    require(z.lt.productDestroy(z.product) == Status::InvalidValue, "the product is destroyed");
    require(z.multiply(gpu.stream()) == Status::InvalidValue, "the product is destroyed");
    z.product = reinterpret_cast<cublaslt::Product>(z.aLayout);
    require(z.choose() == Status::InvalidValue, "a layout is no product");
  });
}

TEST(SimulatedProductCalls, AttributesHaveTheirSizes) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    const uint64_t value = 1;
    for (const size_t bytes : {0, 1, 2, 4, 8, 16}) {
      const auto expect = [&](Status status, size_t right) {
        require(status == (bytes == right ? Status::Success : Status::InvalidValue), "the size of the attribute");
      };
      expect(x.lt.productSet(x.product, ProductAttribute::TransposeA, &value, bytes), 4);
      expect(x.lt.productSet(x.product, ProductAttribute::TransposeB, &value, bytes), 4);
      expect(x.lt.productSet(x.product, ProductAttribute::Epilogue, &value, bytes), 4);
      expect(x.lt.productSet(x.product, ProductAttribute::BiasPointer, &value, bytes), 8);
      expect(x.lt.layoutSet(x.aLayout, LayoutAttribute::BatchCount, &value, bytes), 4);
      expect(x.lt.layoutSet(x.aLayout, LayoutAttribute::BatchStride, &value, bytes), 8);
      expect(x.lt.preferenceSet(x.preference, PreferenceAttribute::MostWorkspaceBytes, &value, bytes), 8);
      expect(x.lt.preferenceSet(x.preference, PreferenceAttribute::AlignmentOfA, &value, bytes), 4);
      expect(x.lt.preferenceSet(x.preference, PreferenceAttribute::AlignmentOfD, &value, bytes), 4);
    }
    require(x.lt.productSet(x.product, ProductAttribute::TransposeA, nullptr, 4) == Status::InvalidValue, "no value");
  });
}

TEST(SimulatedProductCalls, WhatIsNotSimulatedIsNamed) {
  const auto with = [](const std::function<void(Multiplication&)>& call) {
    return [=](Simulated& gpu) {
      Multiplication x(gpu, {});
      call(x);
    };
  };
  expectReport("cublasLtMatmulDescSetAttribute:.*attribute 26 is not simulated",
               with([](Multiplication& x) { x.set(ProductAttribute{26}, int32_t{0}); }));
  for (const uint32_t epilogue :
       {0, 3, 5, 34, 130, 134, 152, 160, 164, 192, 208, 256, 512}) {  // undefined; auxiliary; backward
    expectReport("epilogue " + std::to_string(epilogue) + " is not simulated",
                 with([=](Multiplication& x) { x.set(ProductAttribute::Epilogue, epilogue); }));
  }
  expectReport("operation 2 is not simulated",
               with([](Multiplication& x) { x.set(ProductAttribute::TransposeB, int32_t{2}); }));
  expectReport("cublasLtMatrixLayoutSetAttribute:.*attribute 1 is not simulated",
               with([](Multiplication& x) { x.set(x.aLayout, LayoutAttribute{1}, int32_t{1}); }));
  expectReport("cublasLtMatmulPreferenceSetAttribute:.*attribute 0 is not simulated",
               with([](Multiplication& x) { x.prefer(PreferenceAttribute{0}, uint32_t{0}); }));
  expectReport("an alignment is a power of 2, not 12",
               with([](Multiplication& x) { x.prefer(PreferenceAttribute::AlignmentOfB, uint32_t{12}); }));
  expectReport("type 3 is not simulated",
               with([](Multiplication& x) { x.lt.layoutCreate(&x.aLayout, ElementType{3}, 1, 1, 1); }));
  expectReport("compute type 64 is not simulated",
               with([](Multiplication& x) { x.lt.productCreate(&x.product, ComputeType{64}, ElementType::Float); }));
}

struct Combination {
  ElementType a, b, c, d;
  ComputeType compute;
  ElementType scale;
  Epilogue epilogue;
  Status status;
};

TEST(SimulatedProductCalls, TypesAreSupportedOrNot) {
  using enum ElementType;
  using enum Status;
  constexpr auto kFloat = ComputeType::Float;
  constexpr auto kDouble = ComputeType::Double;
  constexpr auto kNone = Epilogue::None;
  constexpr auto kBias = Epilogue::Bias;
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    const std::vector<Combination> all = {
        {Float, Float, Float, Float, kFloat, Float, kBias, Success},
        {Half, Half, Half, Half, kFloat, Float, kBias, Success},
        {BFloat16, BFloat16, BFloat16, BFloat16, kFloat, Float, kBias, Success},
        {Half, Half, Float, Float, kFloat, Float, kBias, Success},
        {BFloat16, BFloat16, Float, Float, kFloat, Float, kBias, Success},
        {Double, Double, Double, Double, kDouble, Double, kNone, Success},
        {Double, Double, Double, Double, kDouble, Double, kBias, NotSupported},
        {Double, Double, Double, Double, kDouble, Double, Epilogue::Relu, NotSupported},
        {Double, Double, Double, Double, kDouble, Double, Epilogue::Gelu, NotSupported},
        {Float, Float, Float, Float, kFloat, Float, Epilogue::ReluBias, Success},
        {Half, Half, Half, Half, kFloat, Float, Epilogue::GeluBias, Success},
        {BFloat16, BFloat16, Float, Float, kFloat, Float, Epilogue::Gelu, Success},
        {Double, Double, Double, Double, kFloat, Float, kNone, NotSupported},
        {Double, Double, Double, Double, kDouble, Float, kNone, NotSupported},
        {Float, Float, Float, Float, kDouble, Double, kNone, NotSupported},
        {Float, Float, Float, Float, kFloat, Double, kNone, NotSupported},
        {Half, BFloat16, Float, Float, kFloat, Float, kNone, NotSupported},
        {Float, Half, Float, Float, kFloat, Float, kNone, NotSupported},
        {Half, Half, Float, Half, kFloat, Float, kNone, NotSupported},
        {Half, Half, Half, Float, kFloat, Float, kNone, NotSupported},
        {Float, Float, Half, Half, kFloat, Float, kNone, NotSupported},
        {Half, Half, BFloat16, BFloat16, kFloat, Float, kNone, NotSupported},
        {Float, Float, Double, Double, kDouble, Double, kNone, NotSupported},
    };
    for (const Combination& o : all) {
      expectDone(x.lt.productCreate(&x.product, o.compute, o.scale), "cublasLtMatmulDescCreate");
      x.set(ProductAttribute::Epilogue, o.epilogue);
      x.lt.layoutCreate(&x.aLayout, o.a, 3, 5, 3);
      x.lt.layoutCreate(&x.bLayout, o.b, 5, 4, 5);
      x.lt.layoutCreate(&x.cLayout, o.c, 3, 4, 3);
      x.lt.layoutCreate(&x.dLayout, o.d, 3, 4, 3);
      require(x.choose() == o.status, ("combination " + std::to_string(&o - all.data())).c_str());
    }
  });
}

TEST(SimulatedProductCalls, ShapesFit) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    const auto type = ElementType::Float;
    const auto expectWith = [&](Status status, cublaslt::MatrixLayout& layout, uint64_t rows, uint64_t columns,
                                int64_t stride, int32_t batches = 1) {
      const cublaslt::MatrixLayout right = layout;
      expectDone(x.lt.layoutCreate(&layout, type, rows, columns, stride), "cublasLtMatrixLayoutCreate");
      x.set(layout, LayoutAttribute::BatchCount, batches);
      require(x.choose() == status, "the shape is refused or not");
      layout = right;
    };
    expectWith(Status::Success, x.aLayout, 3, 5, 7);
    expectWith(Status::InvalidValue, x.aLayout, 3, 5, 2);
    expectWith(Status::InvalidValue, x.aLayout, 3, 5, -3);
    expectWith(Status::InvalidValue, x.aLayout, 4, 5, 4);
    expectWith(Status::InvalidValue, x.aLayout, 3, 6, 3);
    expectWith(Status::InvalidValue, x.aLayout, 3, 5, 3, 2);
    expectWith(Status::InvalidValue, x.bLayout, 5, 3, 5);
    expectWith(Status::InvalidValue, x.bLayout, 0, 4, 5);
    expectWith(Status::Success, x.cLayout, 3, 4, 0);  // one column for all
    expectWith(Status::InvalidValue, x.cLayout, 3, 3, 3);
    expectWith(Status::InvalidValue, x.dLayout, 3, 4, 0);
    expectWith(Status::InvalidValue, x.dLayout, 3, 4, 3, 0);
    x.cLayout = nullptr;
    require(x.choose() == Status::Success, "the layout of C may be left out");
    int found = 7;
    require(x.lt.chooseAlgorithm(x.handle, x.product, x.aLayout, x.bLayout, x.cLayout, x.dLayout, x.preference, 0,
                                 &x.chosen, &found) == Status::InvalidValue &&
                found == 0,
            "no algorithm is asked for");
  });
}

TEST(SimulatedProductCalls, AnAlgorithmServesItsProblem) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    Multiplication y(gpu, {});
    Multiplication wide(gpu, {.n = 6});
    Multiplication transposed(gpu, {.transposeB = true});
    const cuda::Stream stream = gpu.stream();
    require(x.multiply(stream) == Status::InvalidValue, "zeros are no algorithm");
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    y.algorithm = wide.algorithm = transposed.algorithm = &x.chosen.algorithm;
    require(wide.multiply(stream) == Status::InvalidValue, "another shape");
    require(transposed.multiply(stream) == Status::InvalidValue, "another operation");
    expectDone(y.multiply(stream), "cublasLtMatmul with equal objects");
    y.set(y.dLayout, LayoutAttribute::BatchStride, int64_t{64});
    require(y.multiply(stream) == Status::InvalidValue, "another stride");
    y.set(y.dLayout, LayoutAttribute::BatchStride, int64_t{0});
    y.set(ProductAttribute::Epilogue, Epilogue::Relu);
    require(y.multiply(stream) == Status::InvalidValue, "another epilogue");
    wide.algorithm = nullptr;
    expectDone(wide.multiply(stream), "cublasLtMatmul chooses one");
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    wide.expectRight();
    x.chosen.algorithm.data[3]++;
    require(x.multiply(stream) == Status::InvalidValue, "a changed algorithm is none");
  });
}

TEST(SimulatedProductCalls, AnAlgorithmIsChecked) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, kLargeProduct);
    Multiplication wide(gpu, {.n = 6});
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    cublaslt::HeuristicResult result{};
    const auto check = [&](const Multiplication& of, const cublaslt::Algorithm* algorithm) {
      return of.lt.checkAlgorithm(of.handle, of.product, of.aLayout, of.bLayout, of.cLayout, of.dLayout, algorithm,
                                  &result);
    };
    const cublaslt::Algorithm kept = x.chosen.algorithm;
    expectDone(check(x, &kept), "cublasLtMatmulAlgoCheck");
    require(result.workspaceBytes == x.chosen.workspaceBytes && result.state == Status::Success, "what it needs");
    require(check(wide, &kept) == Status::InvalidValue, "of another product");
    const cublaslt::Algorithm none{};
    require(check(x, &none) == Status::InvalidValue, "zeros are no algorithm");
    require(check(x, nullptr) == Status::InvalidValue, "no algorithm");
    x.set(ProductAttribute::Epilogue, Epilogue::Relu);
    require(check(x, &kept) == Status::InvalidValue, "of another epilogue");
    expectDone(x.lt.destroy(x.handle), "cublasLtDestroy");
    require(check(x, &kept) == Status::NotInitialized, "the handle is destroyed");
  });
}

TEST(SimulatedProductCalls, PointersAreAlignedToElements) {
  expectFine([](Simulated& gpu) {
    const auto statusWith = [&](DevicePointer Multiplication::*pointer, DeviceMatrices Multiplication::*of,
                                uint64_t more) {
      Multiplication x(gpu, {.in = ElementType::Half, .out = ElementType::Float, .hasBias = true});
      for (const auto side : {PreferenceAttribute::AlignmentOfA, PreferenceAttribute::AlignmentOfB,
                              PreferenceAttribute::AlignmentOfC, PreferenceAttribute::AlignmentOfD}) {
        x.prefer(side, uint32_t{1});
      }
      DevicePointer& at = pointer != nullptr ? x.*pointer : (x.*of).at;
      at = gpu.allocate(256) + more;
      x.put(at, std::string(64, '\0'));
      x.set(ProductAttribute::BiasPointer, x.bias);
      expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
      return x.multiply(gpu.stream());
    };
    require(statusWith(nullptr, &Multiplication::a, 2) == Status::Success, "A is of type half");
    require(statusWith(nullptr, &Multiplication::a, 1) == Status::InvalidValue, "A is of type half");
    require(statusWith(nullptr, &Multiplication::b, 1) == Status::InvalidValue, "B is of type half");
    require(statusWith(nullptr, &Multiplication::c, 2) == Status::InvalidValue, "C is of type float");
    require(statusWith(nullptr, &Multiplication::d, 4) == Status::Success, "D is of type float");
    require(statusWith(nullptr, &Multiplication::d, 2) == Status::InvalidValue, "D is of type float");
    require(statusWith(&Multiplication::bias, nullptr, 4) == Status::Success, "the bias is of the type of D");
    require(statusWith(&Multiplication::bias, nullptr, 2) == Status::InvalidValue, "the bias is of the type of D");
  });
}

TEST(SimulatedProductCalls, NothingIsNoPointer) {
  expectFine([](Simulated& gpu) {
    const auto statusWithout = [&](DeviceMatrices Multiplication::*of, double beta) {
      Multiplication x(gpu, {.beta = beta});
      expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
      (x.*of).at = 0;
      return x.multiply(gpu.stream());
    };
    require(statusWithout(&Multiplication::a, 0) == Status::InvalidValue, "A is needed");
    require(statusWithout(&Multiplication::b, 0) == Status::InvalidValue, "B is needed");
    require(statusWithout(&Multiplication::c, 1) == Status::InvalidValue, "C is needed");
    require(statusWithout(&Multiplication::c, 0) == Status::Success, "C is not read");
    require(statusWithout(&Multiplication::d, 0) == Status::InvalidValue, "D is needed");
    Multiplication x(gpu, {.hasBias = true});
    x.set(ProductAttribute::BiasPointer, DevicePointer{0});
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    require(x.multiply(gpu.stream()) == Status::InvalidValue, "the bias is needed");
    Multiplication large(gpu, kLargeProduct);
    expectDone(large.choose(), "cublasLtMatmulAlgoGetHeuristic");
    large.chosen.workspaceBytes = 0;
    large.workspaceBytes = 4096;
    require(large.multiply(gpu.stream()) == Status::InvalidValue, "workspace is needed");
  });
}

TEST(SimulatedProductCalls, AStreamIsNeeded) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    expectDone(x.choose(), "cublasLtMatmulAlgoGetHeuristic");
    const cuda::Stream gone = gpu.stream();
    gpu.expect(gpu.streamDestroy(gone), "cuStreamDestroy");
    require(x.multiply(gone) == Status::ExecutionFailed, "the stream is destroyed");
    expectDone(x.multiply(nullptr), "cublasLtMatmul on the default stream");
    gpu.expect(gpu.contextSynchronize(), "synchronize");
    x.expectRight();
  });
}

TEST(SimulatedProductCalls, FaultsOnDemand) {
  setenv("SIMGPU_FAULT", "product:2", 1);
  expectFine([](Simulated& gpu) {
    const cuda::Stream stream = gpu.stream();
    Multiplication x(gpu, {});
    x.expectMultiplied(stream);
    require(x.multiply(stream) == Status::ExecutionFailed, "the second product fails");
    x.expectMultiplied(stream);
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    x.expectRight();
  });
  unsetenv("SIMGPU_FAULT");
}

}  // namespace
}  // namespace meshfuse
