// Where CUDA's libraries are looked for.
#include "device/cuda/api/vendor_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace meshfuse {
namespace {

// A folder that MESHFUSE_CUDA_LIBRARIES names for the time of a test.
class CudaLibraries : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "cuda_libraries_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv("MESHFUSE_CUDA_LIBRARIES", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("MESHFUSE_CUDA_LIBRARIES");
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
};

struct Mathematics : VendorLibrary {
  explicit Mathematics(const std::vector<std::string>& sonames, const std::vector<std::string>& further = {})
      : VendorLibrary(sonames, further) {
    cosine = find<double(double)>("cos");
  }
  void alsoFind(const char* symbol) { find<void()>(symbol); }

  double (*cosine)(double) = nullptr;
};

TEST_F(CudaLibraries, AreSearchedInTheFolderAlone) {
  const Mathematics m({"libm.so.6"}, {"libm.so.6"});
  EXPECT_FALSE(m.usable());
  EXPECT_NE(m.reason().find((folder_ / "libm.so.6").string()), std::string::npos) << m.reason();
}

TEST_F(CudaLibraries, AreSearchedByEachName) {
  std::ofstream(folder_ / "libnewer.so.2") << "no library";
  Mathematics m({"libnewer.so.2", "libm.so.6"});
  EXPECT_FALSE(m.usable());
  std::error_code none;
  std::filesystem::create_symlink("/lib/x86_64-linux-gnu/libm.so.6", folder_ / "libm.so.6", none);
  m = Mathematics({"libnewer.so.2", "libm.so.6"});
  if (!m.usable()) {
    GTEST_SKIP() << "no libm where Debian has it: " << m.reason();
  }
  EXPECT_EQ(m.cosine(0), 1);
}

TEST_F(CudaLibraries, AreSearchedByTheLoaderWithoutAFolder) {
  for (const bool isEmpty : {true, false}) {
    if (isEmpty) {
      setenv("MESHFUSE_CUDA_LIBRARIES", "", 1);
    } else {
      unsetenv("MESHFUSE_CUDA_LIBRARIES");
    }
    const Mathematics m({"libabsent.so.1", "libm.so.6"});
    ASSERT_TRUE(m.usable()) << m.reason();
    EXPECT_EQ(m.name(), "libm.so.6");
    EXPECT_EQ(m.cosine(0), 1);
    EXPECT_TRUE(Mathematics({"libabsent.so.1"}, {"libm.so.6"}).usable());
  }
}

TEST_F(CudaLibraries, AreUnusableWithoutAFunction) {
  unsetenv("MESHFUSE_CUDA_LIBRARIES");
  Mathematics m({"libm.so.6"});
  ASSERT_TRUE(m.usable());
  m.alsoFind("cosineOfNothing");
  EXPECT_FALSE(m.usable());
  EXPECT_EQ(m.reason(), "libm.so.6 has no function cosineOfNothing");
}

}  // namespace
}  // namespace meshfuse
