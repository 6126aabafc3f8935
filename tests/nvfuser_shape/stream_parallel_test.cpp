// Ports of test_multidevice_stream_parallel_type.cpp: the programs and their results. The loop that nvFuser binds to Stream stays a plain loop.
#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

class PortsOfStreamParallel : public PortTest {};

constexpr int64_t kStreams = 3;

TensorView* input(Fusion& f, int64_t dims) {
  TensorView* tv = makeContigTensor(dims);
  f.addInput(tv);
  return tv;
}

// Also the port of AllgatherP2p, which sends the rows one by one.
TEST_F(PortsOfStreamParallel, Allgather) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = input(f, 2);
      TensorView* out = set(in);
      f.addOutput(out);
      bindDim(in, 0, d);
      out->setDeviceMesh(in->getDeviceMesh());
    };
    return Port{build, {random({d, 4})}, {{"all-gather"}}};
  });
}

TEST_F(PortsOfStreamParallel, Allreduce) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = input(f, 3);
      TensorView* out = sum(in, {1});
      f.addOutput(out);
      bindDim(in, 1, d);
      out->setDeviceMesh(in->getDeviceMesh());
    };
    return Port{build, {random({kStreams, d, 4})}, {{"all-reduce"}}};
  });
}

TEST_F(PortsOfStreamParallel, ReduceScatter) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = input(f, 4);  // [streams, terms, rows of ranks, 4]
      TensorView* out = sum(in, {1});
      f.addOutput(out);
      bindDim(in, 1, d);
      out->setDeviceMesh(in->getDeviceMesh());
      out->axis(2)->parallelize(ParallelType::DIDx);  // axis 1 is the reduced dim
    };
    return Port{build, {random({kStreams, d, d, 4})}, {{"reduce-scatter"}}};
  });
}

// Also the port of AG_matmul_P2p.
TEST_F(PortsOfStreamParallel, AllgatherBeforeAProduct) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* a = input(f, 4);  // [streams, ranks, rows, 8]
      TensorView* b = input(f, 2);  // [8, 6]
      TensorView* whole = set(a);
      f.addOutput(matmul(whole, b));
      bindDim(a, 1, d);
      b->setDeviceMesh(a->getDeviceMesh());
      whole->setDeviceMesh(a->getDeviceMesh());
    };
    return Port{build, {random({kStreams, d, 2, 8}, 1), random({8, 6}, 2)}, {{"all-gather"}}};
  });
}

TEST_F(PortsOfStreamParallel, AProductBeforeAnAllreduce) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* a = input(f, 4);  // [streams, ranks, rows, 8]: the summed dim is cut
      TensorView* b = input(f, 3);  // [ranks, 8, 6]
      TensorView* terms = matmul(a, b);
      TensorView* c = sum(terms, {1});
      f.addOutput(c);
      bindDim(a, 1, d);
      bindDim(b, 0, d);
      c->setDeviceMesh(a->getDeviceMesh());
    };
    return Port{build, {random({kStreams, d, 2, 8}, 1), random({d, 8, 6}, 2)}, {{"all-reduce"}}};
  });
}

TEST_F(PortsOfStreamParallel, AProductBeforeAReduceScatter) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* a = input(f, 5);  // [streams, ranks, rows of ranks, rows, 8]
      TensorView* b = input(f, 3);  // [ranks, 8, 6]
      TensorView* terms = matmul(a, unsqueeze(b, 1));
      TensorView* c = sum(terms, {1});
      f.addOutput(c);
      bindDim(a, 1, d);
      bindDim(b, 0, d);
      c->setDeviceMesh(a->getDeviceMesh());
      c->axis(2)->parallelize(ParallelType::DIDx);  // axis 1 is the reduced dim
    };
    return Port{build, {random({kStreams, d, d, 2, 8}, 1), random({d, 8, 6}, 2)}, {{"reduce-scatter"}}};
  });
}

}  // namespace
}  // namespace meshfuse
