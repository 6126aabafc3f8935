// Gradients that do not fit: every backward op takes dy first, and its errors name the op and the argument.
#include "ops/attention.h"
#include "ops/loss.h"

#include "errors/misuse.h"

namespace meshfuse {
namespace {

class GradientErrors : public testing::Test {
 protected:
  GradientErrors() : guard_(&fusion_) {}

  Fusion fusion_;
  FusionGuard guard_;
  TensorView* x_ = makeConcreteTensor({2, 4, 3});
  TensorView* wrong_ = makeConcreteTensor({2, 4, 5});
  TensorView* channel_ = makeConcreteTensor({4});
  TensorView* perSample_ = makeConcreteTensor({2, 4});
  TensorView* rows_ = makeConcreteTensor({2, 4, 1});
  TensorView* index_ = makeConcreteTensor({2, 4}, DataType::Int);
  TensorView* target_ = makeConcreteTensor({2, 3}, DataType::Int);
  TensorView* mask_ = makeConcreteTensor({2, 4, 3}, DataType::Bool);
  TensorView* const none_ = nullptr;
};

TEST_F(GradientErrors, NameTheOpAndDy) {
  struct Row {
    std::string op;
    std::function<void(TensorView* dy)> call;
  };
  const std::vector<int64_t> last = {3};
  const Row rows[] = {
      {"relu_backward", [&](auto* dy) { relu_backward(dy, x_); }},
      {"gelu_backward", [&](auto* dy) { gelu_backward(dy, x_); }},
      {"tanh_gelu_backward", [&](auto* dy) { tanh_gelu_backward(dy, x_); }},
      {"silu_backward", [&](auto* dy) { silu_backward(dy, x_); }},
      {"softplus_backward", [&](auto* dy) { softplus_backward(dy, x_); }},
      {"leaky_relu_backward", [&](auto* dy) { leaky_relu_backward(dy, x_); }},
      {"threshold_backward", [&](auto* dy) { threshold_backward(dy, x_, 1.0); }},
      {"clamp_backward", [&](auto* dy) { clamp_backward(dy, x_, 0.0, 1.0); }},
      {"tanh_backward", [&](auto* dy) { tanh_backward(dy, x_); }},
      {"sigmoid_backward", [&](auto* dy) { sigmoid_backward(dy, x_); }},
      {"softmax_backward", [&](auto* dy) { softmax_backward(dy, x_, 1); }},
      {"log_softmax_backward", [&](auto* dy) { log_softmax_backward(dy, x_, 1); }},
      {"layer_norm_backward", [&](auto* dy) { layer_norm_backward(dy, x_, last, rows_, rows_, none_, none_); }},
      {"rms_norm_backward", [&](auto* dy) { rms_norm_backward(dy, x_, last, rows_, none_); }},
      {"batch_norm_backward",
       [&](auto* dy) { batch_norm_backward(dy, x_, none_, none_, none_, channel_, channel_, true, 1e-5); }},
      {"instance_norm_backward",
       [&](auto* dy) { instance_norm_backward(dy, x_, none_, none_, none_, perSample_, perSample_, true, 1e-5); }},
      {"group_norm_backward", [&](auto* dy) { group_norm_backward(dy, x_, 2, index_, index_, none_); }},
      {"cross_entropy_backward",
       [&](auto* dy) { cross_entropy_backward(dy, x_, target_, {.reduction = LossReduction::None}); }},
      {"embedding_backward", [&](auto* dy) { embedding_backward(dy, target_, 7); }},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.op);
    expectUserError([&] { row.call(none_); }, {"[" + row.op + "] dy is null"});
    expectUserError([&] { row.call(wrong_); }, {"[" + row.op + "] dy is T", "[2, 4, 5], expected "});
  }
}

TEST_F(GradientErrors, NameOtherArgumentsOfBackwardOps) {
  const std::vector<int64_t> last = {3};
  expectUserError([&] { layer_norm_backward(x_, x_, last, channel_, rows_, none_, none_); },
                  {"[layer_norm_backward] mean is T", "[4], expected [2, 4, 3], the shape of x"});
  expectUserError([&] { rms_norm_backward(x_, x_, last, channel_, none_); },
                  {"[rms_norm_backward] invstd is T", "[4]"});
  expectUserError([&] { dropout_backward(wrong_, mask_, 1.0); },
                  {"[dropout_backward] mask is T", "[2, 4, 3], expected [2, 4, 5], the shape of dy"});
  expectUserError([&] { dropout_backward(none_, mask_, 1.0); }, {"[dropout_backward] dy is null"});
  expectUserError([&] { sdpfa_bwd(wrong_, x_, x_, x_, x_, perSample_); },
                  {"[sdpfa_bwd] grad_output is T", "[2, 4, 5]", "expected one shape"});
}

TEST_F(GradientErrors, ComposedOpsNameTheirArguments) {
  expectUserError([&] { clamp(x_, channel_, 1.0); }, {"[clamp] low is T", "[4], expected [2, 4, 3], the shape of x"});
  expectUserError([&] { clamp(x_, 0.0, channel_); }, {"[clamp] high is T"});
  expectUserError([&] { threshold(x_, channel_, 1.0); }, {"[threshold] limit is T"});
  expectUserError([&] { threshold(x_, 1.0, channel_); }, {"[threshold] value is T"});
  expectUserError([&] { softplus(x_, channel_); }, {"[softplus] beta is T"});
  expectUserError([&] { leaky_relu(x_, channel_); }, {"[leaky_relu] negative_slope is T"});
}

}  // namespace
}  // namespace meshfuse
