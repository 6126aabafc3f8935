// The passes whose programs MESHFUSE_DUMP can name.
#pragma once

namespace meshfuse {

// UserError if MESHFUSE_DUMP names a pass that no table has, with the names there are.
void checkDumpedPasses();

}  // namespace meshfuse
