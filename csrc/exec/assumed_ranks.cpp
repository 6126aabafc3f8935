#include "exec/assumed_ranks.h"

#include "base/error.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

[[noreturn]] void refuse() { throwInternalError("[simulation] a rank that is alone was asked to communicate"); }

}  // namespace

AssumedRanks::AssumedRanks(int64_t size, int64_t rank) : size_(size), rank_(rank) { world_.ranks = firstRanks(size); }

void AssumedRanks::run(const CollectiveCall& /*call*/) { refuse(); }
void AssumedRanks::transfer(std::span<const Transfer> /*transfers*/) { refuse(); }
void AssumedRanks::await(const Team& /*team*/, const std::function<bool()>& /*ready*/) { refuse(); }

std::vector<std::string> AssumedRanks::exchange(std::string_view message) {
  return std::vector<std::string>(size_, std::string(message));
}

}  // namespace meshfuse
