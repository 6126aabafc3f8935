// The main of every test binary whose folder has none of its own.
#include <gtest/gtest.h>

#include "requirements.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  meshfuse::skipWhatThisBuildLacks();
  return RUN_ALL_TESTS();
}
