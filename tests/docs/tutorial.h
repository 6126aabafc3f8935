// The functions of docs/tutorial.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "meshfuse/meshfuse.h"

std::unique_ptr<meshfuse::Fusion> sumOfTwo();
meshfuse::Tensor runSumOfTwo();
std::vector<std::string> stepsOf(const meshfuse::FusionExecutorCache& cache);
std::unique_ptr<meshfuse::Fusion> mlp(int64_t ranks);
std::vector<meshfuse::Tensor> runMlp(int64_t ranks, const meshfuse::Tensor& x, const meshfuse::Tensor& w0,
                                     const meshfuse::Tensor& w1);
meshfuse::Tensor verified(meshfuse::Communicator& world, const std::vector<meshfuse::Argument>& inputs);
std::string profiled(meshfuse::FusionExecutorCache& cache, const std::vector<meshfuse::Argument>& inputs);
meshfuse::Tensor runMlpOfFile(const std::string& weights, const meshfuse::Tensor& x, meshfuse::Communicator& world);
void embedFile(const std::string& weights, int64_t heads, const std::string& tokens, const std::string& embeddings);
meshfuse::Tensor embed(const std::string& path, int64_t heads, meshfuse::Communicator& world,
                       const meshfuse::Tensor& tokens);
