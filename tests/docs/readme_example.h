// The function of README.md's example.
#pragma once

#include "multidevice/transport/communicator.h"
#include "tensor/tensor.h"

meshfuse::Tensor mlp(meshfuse::Communicator& world, const meshfuse::Tensor& x, const meshfuse::Tensor& w0,
                     const meshfuse::Tensor& w1);
