// The program of examples/encoder.cpp: the command lines of the documents, and bad input.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "examples/bert_weights.h"

namespace encoder {
namespace {

std::string textOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ended {
  int code = -1;
  std::string out;
  std::string err;
};

// In a directory with a model, model.safetensors and model/model.safetensors, of the 12 heads that the program takes by default.
class EncoderProgram : public ::testing::Test {
 protected:
  EncoderProgram() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    std::filesystem::create_directory(root_ + "/model");
    const BertSizes sizes{.words = 61, .positions = 128, .features = 24, .heads = 12, .inner = 48, .layers = 1};
    writeSafetensors(root_ + "/model.safetensors", randomWeights(sizes));
    std::filesystem::create_hard_link(root_ + "/model.safetensors", root_ + "/model/model.safetensors");
    writeTokens("5 7 1\n1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n60\n");
  }
  ~EncoderProgram() override { std::filesystem::remove_all(root_); }

  void writeTokens(const std::string& text) const { std::ofstream(root_ + "/sentences.txt") << text; }

  // `command` as a shell reads it, with this build's programs in the path.
  Ended run(const std::string& command) const {
    const std::string bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
    const std::string script = fmt::format(
        "cd {0}\nexport PATH={1}:$PATH MESHFUSE_CACHE_DIR=off MESHFUSE_DEADLINE=60 OMPI_ALLOW_RUN_AS_ROOT=1 "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1\n{2}\nstatus=$?\nwait\nexit $status\n",
        root_, bin, command);
    std::ofstream(root_ + "/script") << script;
    const int status =
        std::system(fmt::format("sh {0}/script >{0}/out 2>{0}/err </dev/null", root_).c_str());  // NOLINT(cert-env33-c)
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, textOf(root_ + "/out"), textOf(root_ + "/err")};
  }
  void expectRefused(const std::string& options, const std::string& message) const {
    const Ended refused = run("encoder model.safetensors " + options);
    EXPECT_EQ(refused.code, 1) << options;
    EXPECT_EQ(refused.out, "") << options;
    EXPECT_NE(refused.err.find(message), std::string::npos) << options << ": " << refused.err;
  }

  std::string root_;
};

// The lines of a document's blocks of code that begin with one of these words.
std::vector<std::string> lines(const std::string& document, const std::regex& first) {
  std::vector<std::string> found;
  std::istringstream text(textOf(std::string(MESHFUSE_SOURCE_DIR "/docs/") + document));
  bool isCode = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      isCode = !isCode;
    } else if (isCode && std::regex_search(line, first, std::regex_constants::match_continuous)) {
      found.push_back(line);
    }
  }
  return found;
}

TEST_F(EncoderProgram, MpirunLinesOfTheDocumentsRun) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no mpirun";
  }
  std::vector<std::string> all = lines("tutorial.md", std::regex("mpirun "));
  EXPECT_EQ(all.size(), 1u);
  const std::vector<std::string> more = lines("encoder.md", std::regex("mpirun "));
  EXPECT_EQ(more.size(), 3u);
  all.insert(all.end(), more.begin(), more.end());
  for (const std::string& line : all) {
    const Ended ran = run(line + " --repeat 1");
    EXPECT_EQ(ran.code, 0) << line << "\n" << ran.err;
    std::smatch ranks;
    ASSERT_TRUE(std::regex_search(line, ranks, std::regex("-np (\\d+)"))) << line;
    EXPECT_NE(ran.out.find(ranks[1].str() + " ranks, transport host"), std::string::npos) << line << "\n" << ran.out;
  }
}

// The plan, and the embeddings of the shardings by hand; the last of three sentences is a batch of its own.
TEST_F(EncoderProgram, AutoShardsByAPlanAndPrintsIt) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no mpirun";
  }
  const std::string options = "encoder model.safetensors --tokens sentences.txt --batch 2 --repeat 0 --save ";
  ASSERT_EQ(run(options + "one.npy").code, 0);
  const Tensor expected = readNpy(root_ + "/one.npy");
  for (const int64_t ranks : {2, 4}) {
    const Ended ran = run(fmt::format("mpirun -np {} {} planned.npy --auto", ranks, options));
    ASSERT_EQ(ran.code, 0) << ran.err;
    const std::string batch = fmt::format("for batches of {} sentences of 32 tokens: plan on mesh", ranks);
    EXPECT_NE(ran.out.find(batch), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("above the best plan"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("best plan if inputs are sharded in one way only"), std::string::npos) << ran.out;
    const Tensor got = readNpy(root_ + "/planned.npy");
    ASSERT_EQ(got.numel(), expected.numel());
    for (int64_t i = 0; i < got.numel(); i++) {
      EXPECT_NEAR(got.data_as<float>()[i], expected.data_as<float>()[i], 5e-7) << ranks << " ranks, element " << i;
    }
  }
}

TEST_F(EncoderProgram, LinesWithoutALauncherRun) {
  std::string ranks;
  for (const std::string& line : lines("tutorial.md", std::regex("RANK="))) {
    ranks += std::regex_replace(line, std::regex("29500"), std::to_string(20000 + getpid() % 20000)) + "\n";
  }
  ASSERT_NE(ranks, "");
  const Ended ran = run(ranks);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("2 ranks, transport host"), std::string::npos) << ran.out;
  for (const std::string& line : lines("encoder.md", std::regex("encoder (?!.*cuda)"))) {
    const Ended alone = run(line);
    EXPECT_EQ(alone.code, 0) << line << "\n" << alone.err;
    EXPECT_NE(alone.out.find("3 sentences"), std::string::npos) << line << "\n" << alone.out;
  }
  EXPECT_EQ(readNpy(root_ + "/embeddings.npy").size(0), 3);
}

TEST_F(EncoderProgram, RefusesBadTokens) {
  struct Case {
    std::string tokens;
    std::string message;
  };
  const Case cases[] = {
      {"1 2\n3 x4 5\n", "sentences.txt, line 2: got the token id \"x4\", expected 1 to 60"},
      {"1 0 2\n", "sentences.txt, line 1: got the token id \"0\", expected 1 to 60"},
      {"61\n", "sentences.txt, line 1: got the token id \"61\", expected 1 to 60"},
      {"-1\n", "got the token id \"-1\""},
      {"1.5\n", "got the token id \"1.5\""},
      {"99999999999999999999\n", "got the token id \"99999999999999999999\""},
      {"1\n\n2\n", "sentences.txt, line 2: got 0 token ids, expected 1 to 128, the positions of the model"},
      {"", "sentences.txt has no lines"},
  };
  for (const Case& c : cases) {
    writeTokens(c.tokens);
    expectRefused("--tokens sentences.txt", c.message);
  }
  std::string many;
  for (int64_t i = 0; i < 129; i++) {
    many += "7 ";
  }
  writeTokens(many);
  expectRefused("--tokens sentences.txt", "line 1: got 129 token ids, expected 1 to 128");
  expectRefused("--tokens missing.txt", "cannot read the tokens in missing.txt");
  expectRefused("--length 129", "--length is 129, the model has 128 positions");
}

TEST_F(EncoderProgram, RefusesBadMeshes) {
  for (const char* axis : {"dp", "dp=", "dp=0", "dp=-1", "tp=2x", "pp=2", "=2"}) {
    expectRefused(fmt::format("--mesh {}", axis),
                  fmt::format("--mesh has the axis \"{}\"; expected dp=N, tp=N, or both", axis));
  }
  expectRefused("--mesh dp=1,dp=1", "--mesh has the axis \"dp=1\"");
  expectRefused("--mesh dp=2,tp=2", "--mesh has 4 ranks, the launcher started 1; make both equal");
  expectRefused("--auto --memory 2kB", "no plan fits in memoryPerDevice, 2000 bytes");
  expectRefused("--auto --heads 5", "got 5 heads; expected a divisor of the 24 features");
  expectRefused("--heads 5", "got 5 heads; expected a divisor of the 24 features");
}

}  // namespace
}  // namespace encoder
