// meshfuse explain --html: one page that needs nothing else, and says all that --json says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/tool.h"
#include "tools/xml.h"

namespace meshfuse {
namespace {

std::string page(const std::string& arguments) {
  const std::string file = temporaryDirectory() + "/page.html";
  std::filesystem::remove(file);
  const ToolRun run = tool("explain " + arguments + " --html {tmp}/page.html");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "wrote " + file + "\n");
  return fileText(file);
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    n++;
  }
  return n;
}

constexpr const char* kPrograms[] = {"{dir}/sharded_sum.fir",
                                     "{dir}/tensor_parallel_mlp.fir --size i0=32",
                                     "{dir}/sums_over_two_axes.fir",
                                     "{dir}/rows_to_columns.fir",
                                     "{dir}/softmax.fir --size i0=1000000 --size i1=30",
                                     "{dir}/scaled_embedding.fir --input S2=0.5"};

TEST(XmlReader, FindsWhatIsWrong) {
  EXPECT_EQ(xmlError("<!DOCTYPE html>\n<a b=\"1 &lt; 2\"><c/>text &amp; &#955;</a>\n"), "");
  for (const char* text :
       {"<a>", "<a></b>", "<a b=1></a>", "<a b=\"1\" b=\"2\"></a>", "<a>1 < 2</a>", "<a>x & y</a>", "<a b=\"<\"></a>",
        "<a></a><b></b>", "<a>&nbsp;</a>", "text", "<a>\x01</a>", "<a b=\"1></a>"}) {
    EXPECT_NE(xmlError(text), "") << text;
  }
}

TEST(ToolPage, IsWellFormedAndNeedsNothingElse) {
  for (const char* program : kPrograms) {
    SCOPED_TRACE(program);
    const std::string html = page(program);
    EXPECT_EQ(xmlError(html), "");
    EXPECT_EQ(count(html, "http"), 1u) << "the name space alone";
    for (const char* reference : {" src=", "@import", "url(", "<link", "//"}) {
      EXPECT_EQ(count(html, reference), reference == std::string("//") ? 1u : 0u) << reference;
    }
    for (size_t at = html.find("href=\""); at != std::string::npos; at = html.find("href=\"", at + 1)) {
      const std::string target = html.substr(at + 6, html.find('"', at + 6) - at - 6);
      ASSERT_EQ(target[0], '#') << target;
      EXPECT_EQ(count(html, " id=\"" + target.substr(1) + "\""), 1u) << target;
    }
  }
}

TEST(ToolPage, HasEveryTensorEdgeAndStep) {
  for (const char* program : kPrograms) {
    SCOPED_TRACE(program);
    const std::string html = page(program);
    const nlohmann::json j = nlohmann::json::parse(tool(std::string("explain --json ") + program).out);
    for (const auto& t : j["tensors"]) {
      EXPECT_EQ(count(html, " id=\"" + t["name"].get<std::string>() + "\""), 1u);
      EXPECT_EQ(count(html, "data-line=\"" + t["name"].get<std::string>() + "\""), 1u);
    }
    EXPECT_EQ(count(html, "<tr data-relation="), j["edges"].size());
    EXPECT_EQ(count(html, "<g class=\"arc "), j["edges"].size());
    EXPECT_EQ(count(html, "<article class=\"card step "), j["steps"].size());
    for (const auto& s : j["steps"]) {
      EXPECT_EQ(s["text"].size(), s["ops"].size());
      EXPECT_NE(html.find("title=\"" + std::to_string(s["bytes_read"].get<int64_t>()) + " bytes\""), std::string::npos);
    }
    for (const auto& e : j["edges"]) {
      EXPECT_EQ(e["moves"].size(), e["move_bytes"].size());
    }
  }
}

// Tiles against the sizes: each element is on as many ranks as hold a copy of it, a partial sum on all of them.
TEST(ToolPage, TilesCoverTheTensor) {
  for (const char* program : kPrograms) {
    const nlohmann::json j = nlohmann::json::parse(tool(std::string("explain --json ") + program).out);
    for (const auto& t : j["tensors"]) {
      std::vector<int64_t> sizes = t["sizes"];
      if (t["sums_dim"] >= 0) {
        sizes.erase(sizes.begin() + t["sums_dim"].get<int>());
      }
      int64_t all = 1;
      int64_t own = 1;
      for (size_t k = 0; k < sizes.size(); k++) {
        all *= sizes[k];
        own *= t["local_sizes"][k].get<int64_t>();
      }
      int64_t held = 0;
      std::map<std::string, int> copies;
      for (const auto& tile : t["tiles"]) {
        int64_t elements = 1;
        for (const auto& dim : tile["holds"]) {
          int64_t length = 0;
          std::istringstream ranges(dim.get<std::string>());
          for (std::string range; std::getline(ranges, range, ',');) {
            length += std::stoll(range.substr(range.find(':') + 1)) - std::stoll(range);
          }
          elements *= length;
        }
        EXPECT_EQ(elements, own) << program << " " << t["name"];
        held += elements;
        copies[tile["holds"].dump()]++;
      }
      if (!t["tiles"].empty()) {
        EXPECT_EQ(held, all * copies.begin()->second) << program << " " << t["name"];
      }
    }
  }
  const nlohmann::json j = nlohmann::json::parse(tool("explain --json {dir}/sums_over_two_axes.fir").out);
  EXPECT_EQ(j["tensors"][0]["tiles"][5]["holds"], (std::vector<std::string>{"7:8,9:10,11:12", "0:12"}));  // a 1, b 1
  const nlohmann::json parts = nlohmann::json::parse(tool("explain --json {dir}/rows_of_experts.fir").out);
  std::vector<std::string> rows;
  for (const auto& tile : parts["tensors"][0]["tiles"]) {
    rows.push_back(tile["holds"][0]);
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"0:2", "2:5", "5:9", "9:14"}));
}

TEST(ToolPage, BuffersAreInTheArenaAndDoNotMeet) {
  const nlohmann::json j = nlohmann::json::parse(tool("explain --json {dir}/tensor_parallel_mlp.fir --size i0=32").out);
  int64_t outside = 0;
  for (const auto& a : j["buffers"]) {
    if (a["place"] != "arena") {
      outside += a["bytes"].get<int64_t>();
      continue;
    }
    EXPECT_LE(a["offset"].get<int64_t>() + a["bytes"].get<int64_t>(), j["arena_bytes"]);
    for (const auto& b : j["buffers"]) {
      const bool together = a["first_step"] <= b["last_step"] && b["first_step"] <= a["last_step"];
      if (a["tensor"] < b["tensor"] && b["place"] == "arena" && together) {
        EXPECT_TRUE(a["offset"].get<int64_t>() + a["bytes"].get<int64_t>() <= b["offset"] ||
                    b["offset"].get<int64_t>() + b["bytes"].get<int64_t>() <= a["offset"])
            << a << b;
      }
    }
  }
  EXPECT_EQ(outside + j["arena_bytes"].get<int64_t>(), j["peak_bytes"]);
}

TEST(ToolPage, SameBytes) {
  const std::string html = page("{dir}/sharded_sum.fir");
  EXPECT_EQ(html, page("{dir}/sharded_sum.fir"));
  const std::string golden = std::string(MESHFUSE_SOURCE_DIR) + "/tests/tools/sharded_sum.html";
  if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(golden, std::ios::binary) << html;
  }
  EXPECT_EQ(html, fileText(golden)) << "MESHFUSE_UPDATE_GOLDEN=1 writes it anew";
}

TEST(ToolPage, NamesAreEscaped) {
  const std::string odd = temporaryDirectory() + "/a <b> & \"c\".fir";
  std::filesystem::copy_file(std::string(MESHFUSE_SOURCE_DIR) + "/tests/tools/sharded_sum.fir", odd,
                             std::filesystem::copy_options::overwrite_existing);
  const std::string html = page("'" + odd + "'");
  EXPECT_EQ(xmlError(html), "");
  EXPECT_EQ(count(html, "a &lt;b&gt; &amp; &quot;c&quot;.fir"), 2u) << "title and heading";
}

TEST(ToolPage, TimelineOfARun) {
  const std::string html = page("{dir}/rows_to_columns.fir --run");
  EXPECT_EQ(xmlError(html), "");
  EXPECT_EQ(count(html, "<div class=\"rows\">"), 4u);
  EXPECT_EQ(count(html, "<i class=\"kernels\""), 4u);
  EXPECT_EQ(count(html, "<i class=\"collectives\""), 4u);
  EXPECT_GE(count(html, "<i class=\"waits\""), 1u) << "of two ranks that swap, the first one waits";
  const ToolRun run = tool("explain {dir}/rows_to_columns.fir --run --json");
  const nlohmann::json j = nlohmann::json::parse(run.out);
  int64_t bytes = 0;
  int waits = 0;
  for (const auto& span : j["timeline"]) {
    EXPECT_GE(span["begin"], 0);
    bytes += span["bytes"].get<int64_t>();
    if (span["row"] != "waits") {
      continue;
    }
    waits++;
    EXPECT_LE(span["begin"], span["end"]);
    EXPECT_TRUE(std::ranges::any_of(j["timeline"], [&](const auto& around) {
      return around["row"] == "collectives" && around["rank"] == span["rank"] && around["step"] == span["step"] &&
             around["begin"] <= span["begin"] && span["end"] <= around["end"];
    })) << span.dump();
  }
  EXPECT_GE(waits, 1);
  EXPECT_EQ(bytes, 2 * 128) << "ranks 1 and 2 swap";
}

TEST(ToolPage, TimelineHasARowForEachQueue) {
  const std::string html = page("{dir}/overlapped.fir --run");
  EXPECT_EQ(xmlError(html), "");
  EXPECT_EQ(count(html, "style=\"--rows:4\""), 1u) << "kernels, two queues of collectives, waits";
  EXPECT_EQ(count(html, "<div class=\"row\">"), 4u * 4u);
  EXPECT_EQ(count(html, "bytes received, queue 1\""), 4u);
  EXPECT_EQ(count(html, "bytes received, queue 2\""), 4u);
  const ToolRun run = tool("explain {dir}/overlapped.fir --run --json");
  const nlohmann::json j = nlohmann::json::parse(run.out);
  std::map<int, int> ofQueue;
  for (const auto& span : j["timeline"]) {
    EXPECT_EQ(span["queue"] != 0, span["row"] == "collectives") << span.dump();
    ofQueue[span["queue"].get<int>()] += span["row"] == "collectives" ? 1 : 0;
  }
  EXPECT_EQ(ofQueue, (std::map<int, int>{{0, 0}, {1, 4}, {2, 4}}));
}

TEST(ToolPage, RefusesWhatDoesNotFit) {
  for (const auto& [arguments, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"explain {dir}/sharded_sum.fir --json --html {tmp}/no.html", "got --json and --html, expected one of them"},
           {"explain {dir}/sharded_sum.fir --run", "--run needs --html or --json"},
           {"explain {dir}/sharded_sum.fir --html /proc/nowhere", "cannot write /proc/nowhere"}}) {
    const ToolRun run = tool(arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace meshfuse
