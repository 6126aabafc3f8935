// Everything a user needs, and nothing else includes this.
#pragma once

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/mesh/device_mesh.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/copy_shape.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/tensors.h"
#include "tensor/tensor.h"
