// Processes that compile the same kernels for a GPU share a disk cache, as those that compile for a CPU do.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "device/cuda/capabilities.h"
#include "tools/tool.h"

namespace meshfuse {

namespace {

namespace fs = std::filesystem;

class ToolCompileCache : public testing::Test {
 protected:
  void SetUp() override {
    if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
      GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
    }
    fs::remove_all(directory());
  }
  static std::string directory() { return temporaryDirectory() + "/kernel_cache"; }

  // The last line of a process that compiles softmax in two sizes, hence two kernels, with this cache; and their bytes.
  static std::string counted() {
    std::string lines;
    for (const char* columns : {"1000", "2000"}) {
      const ToolRun run =
          tool(std::string("compile {dir}/softmax.fir --size i0=64 -o {tmp}/cached --size i1=") + columns,
               "env MESHFUSE_CACHE_DIR=" + directory());
      EXPECT_EQ(run.code, 0) << run.err;
      EXPECT_GT(fs::file_size(temporaryDirectory() + "/cached/00_normalization_T7.cubin"), 1000u);
      lines += run.out.substr(run.out.find("NVRTC "));
    }
    return lines;
  }
};

TEST_F(ToolCompileCache, ASecondProcessMakesNoNvrtcCall) {
  EXPECT_EQ(counted(), "NVRTC compiled 1, the disk cache had 0\nNVRTC compiled 1, the disk cache had 0\n");
  EXPECT_EQ(counted(), "NVRTC compiled 0, the disk cache had 1\nNVRTC compiled 0, the disk cache had 1\n");
}

// One that is planned again is written again.
TEST_F(ToolCompileCache, ASecondProcessLoadsThePlans) {
  const auto plans = [] {
    std::map<std::string, fs::file_time_type> written;
    for (const fs::directory_entry& e : fs::directory_iterator(directory())) {
      if (fileText(e.path()).find("fusion {") != std::string::npos) {
        written[e.path()] = e.last_write_time();
      }
    }
    return written;
  };
  (void)counted();
  const auto first = plans();
  EXPECT_EQ(first.size(), 4u);  // for each program its plan, and the local program of a rank
  (void)counted();
  EXPECT_EQ(plans(), first);
}

TEST_F(ToolCompileCache, OneChangedByteMakesOneNvrtcCall) {
  (void)counted();
  std::vector<fs::path> entries;
  for (const fs::directory_entry& e : fs::directory_iterator(directory())) {
    if (fileText(e.path()).find("\x7f"
                                "ELF") != std::string::npos) {  // a kernel
      entries.push_back(e.path());
    }
  }
  ASSERT_EQ(entries.size(), 2u);
  const auto size = static_cast<std::streamoff>(fs::file_size(entries[0]));
  for (std::streamoff at : {std::streamoff{0}, std::streamoff{25}, size / 2, size - 1}) {
    {
      std::fstream file(entries[0], std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 0x10));
    }
    const std::string lines = counted();
    const std::string again = "NVRTC compiled 1, the disk cache had 0\n";
    const std::string kept = "NVRTC compiled 0, the disk cache had 1\n";
    EXPECT_TRUE(lines == again + kept || lines == kept + again) << "byte " << at << ": " << lines;
    EXPECT_EQ(counted(), kept + kept) << "the entry was not written again";
  }
}

}  // namespace

}  // namespace meshfuse
