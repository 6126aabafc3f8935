// Checks the names of passes in MESHFUSE_DUMP.
#pragma once

namespace meshfuse {

// UserError, with all names, if MESHFUSE_DUMP names a pass that no table has.
void checkDumpedPasses();

}  // namespace meshfuse
