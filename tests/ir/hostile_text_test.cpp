// Programs with numbers, nests and lists as no program has them: each is a UserError that names what is too large, soon and without memory
// for it.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/read_program.h"

namespace meshfuse {
namespace {

std::string repeated(const std::string& text, int64_t times) {
  std::string all;
  for (int64_t k = 0; k < times; k++) {
    all += text;
  }
  return all;
}

std::string numbered(const std::string& before, const std::string& between, int64_t count) {
  std::string all = before + "0";
  for (int64_t k = 1; k < count; k++) {
    all += between + before + std::to_string(k);
  }
  return all;
}

std::string inputOf(const std::string& dims, const std::string& suffix = "") {
  return "T0 = input() : Float[" + dims + "]" + suffix + "\n  output T0";
}

std::string onTwoRanks(const std::string& suffix) {
  return "mesh M0 {x: 2} [0, 1]\n  " + inputOf("8, 4", " mesh M0 " + suffix);
}

std::string resultOf(const std::string& line) { return "T0 = input() : Float[8, 4]\n  " + line + "\n  output T1"; }

std::string planned(const std::string& state) {
  return onTwoRanks("outer_split(0, 2) parallelize(0, DIDx)") + "\n  T1 = redistribute(T0, plan=[all_gather(x) on M0 " +
         state + " -> [8, 4]]) : Float[8, 4] mesh M0";
}

std::string moved(const std::string& rows) {
  return onTwoRanks("") + "\n  T1 = communicate(T0, kind=transfer, mesh=M0, axes=[0], sends=[" + rows +
         " * 0:4], receives=[" + rows + " * 0:4], to=[1], from=[1]) : Float[8, 4]";
}

TEST(HostileText, IsAUserErrorThatNamesTheNumber) {
  const std::string manyDims = repeated("1, ", 99) + "1";
  struct Case {
    std::string body;
    std::string phrase;
  };
  const Case cases[] = {
      {inputOf("4611686018427387904"), "[4611686018427387904] of Float are more than 2^50 bytes"},
      {inputOf("4294967296, 4294967296"), "more than 2^50 bytes"},
      {inputOf("0, 4294967296, 4294967296"), "more than 2^50 bytes"},
      {inputOf("99999999999999999999"), "does not fit in 64 bits"},
      {inputOf("T7"), "T7 names a value, expected a symbol"},
      {resultOf("T1 = add(T0, S7\f) : Float[8, 4]"), "S7 names a value, expected a symbol"},
      {inputOf("4611686018427387904*4"), "got 4611686018427387904 * 4, expected a result of 64 bits"},
      {inputOf("i0*4611686018427387904*4"), "got 4611686018427387904 * 4"},
      {inputOf("9223372036854775807 + 1"), "got 9223372036854775807 + 1"},
      {inputOf("floorDiv(i0, 0)"), "divisors are positive"},
      {inputOf("floorDiv(i0*(0 - 9223372036854775807 - 1), i0*-1)"), "divi"},
      {inputOf(manyDims), "100 dims, expected at most 64"},
      {inputOf(numbered("i", " + ", 20'000)), "an expression of 2049 terms, expected at most 2048"},
      {inputOf(numbered("i", "*", 20'000)), "a product of 257 factors, expected at most 256"},
      {inputOf(repeated("(a + b + c + d)*(e + f + g + h)*(i + j + k + l)*(m + n + o + p)*", 4) + "1"), "terms"},
      {inputOf(repeated("(", 200'000) + "i0" + repeated(")", 200'000)), "more than 256 levels deep"},
      {inputOf(repeated("-", 200'000) + "1"), "more than 256 levels deep"},
      {inputOf(repeated("floorDiv(", 200'000)), "no ']' closes this bracket"},
      {inputOf(repeated("max(1, ", 1'000) + "i0" + repeated(")", 1'000)), "more than 256 levels deep"},
      {"T4194304 = input() : Float[8]\n  output T4194304", "value number 4194304 is too large"},
      {"T99999999999999999999 = input() : Float[8]", "expected a line that begins with"},
      {"symbol i0 {lower: 99999999999999999999}\n  " + inputOf("i0"),
       "expected an integer, got '99999999999999999999'"},
      {"symbol i0 {divisor: 0}\n  " + inputOf("i0"), "divisor 0 of i0; expected at least 1"},
      {"mesh M0 {x: 2} [0, 2147483648]\n  " + inputOf("8"), "device ids are ranks, 0 to 1048575; got 2147483648"},
      {"mesh M0 {x: 2} [0, -1]\n  " + inputOf("8"), "device ids are ranks, 0 to 1048575; got -1"},
      {"mesh M0 {x: 4294967296, y: y} []\n  " + inputOf("8"),
       "axis x has size 4294967296; a mesh axis has 1 to 1048576"},
      {"mesh M0 {x: 1048576, y: 1048576, z: z} []\n  " + inputOf("8"), "have 1099511627776 devices; expected at most"},
      {"mesh M0 {x: x hint 9223372036854775807} []\n  " + inputOf("8"), "the hint for axis x is 9223372036854775807"},
      {onTwoRanks("outer_split(4294967296, 2)"), "axis 4294967296"},
      {onTwoRanks("outer_split(0, 0)"), "got factor 0"},
      {onTwoRanks("merge(9223372036854775807)"), "axis 9223372036854775807"},
      {onTwoRanks("outer_split(0, 2) parallelize(0, DIDx:4294967296:4294967296)"), "DIDx:4294967296:4294967296"},
      {onTwoRanks("outer_split(0, 2) parallelize(0, DID9223372036854775807)"), "DID9223372036854775807"},
      {onTwoRanks("partition(0, [9223372036854775807, 9223372036854775807])"), "got 9223372036854775807 + 9223372036"},
      {onTwoRanks("reorder[4294967296, 0]"), "4294967296 does not fit here; expected -2147483648 to 2147483647"},
      {onTwoRanks("alloc[4294967296, 0]"), "4294967296 does not fit here; expected -2147483648 to 2147483647"},
      {inputOf("8", " mesh M4294967296"), "mesh M4294967296 is not defined above"},
      {resultOf("T1 = cat(T0, T0, dim=4294967296) : Float[16, 4]"), "dim=4294967296 is no dim of 2"},
      {resultOf("T1 = scan(T0, op=sum, dim=-9223372036854775807) : Float[8, 4]"), "dim=-9223372036854775807"},
      {resultOf("T1 = permute(T0, order=[4294967296, 1]) : Float[8, 4]"),
       "4294967296 does not fit here; expected -2147483648 to 2147483647"},
      {resultOf("T1 = pad(T0, 0.0, starts=[9223372036854775807, 0], stops=[0, 0]) : Float[8, 4]"),
       "got 8 + 9223372036854775807"},
      {resultOf("T1 = slice(T0, starts=[-9223372036854775807, 0], stops=[9223372036854775807, 4], steps=[1, 1]) : "
                "Float[8, 4]"),
       "got 9223372036854775807 + 9223372036854775807"},
      {planned("[2:x 1125899906842624, 4]"), "digits of a tensor's dim"},
      {planned("[4611686018427387904 4, 4]"), "[sizes] got 4611686018427387904 * 4"},
      {planned("[2:x 4 parts [9223372036854775807, 1], 4]"), "got 9223372036854775807 + 1"},
      {planned("[2:x 4 parts [-9, 17], 4]"), "the sizes of the parts of a tensor's dim"},
      {moved("0:9223372036854775807"), "expected a run of indices below 2^50"},
      {moved("0:8:9223372036854775807"), "expected a run of indices below 2^50"},
      {moved("0:1125899906842624:2"), "is not in the tensor"},
      {resultOf("T1 = add(T0, 99999999999999999999) : Float[8, 4]"), "does not fit in 64 bits"},
  };
  for (const Case& c : cases) {
    const std::string shown = c.body.substr(0, 120);
    const auto begin = std::chrono::steady_clock::now();
    std::string error = "none";
    try {
      (void)readProgram("fusion {\n  " + c.body + "\n}\n", "a.fir");
    } catch (const UserError& e) {
      error = e.what();
    } catch (const std::exception& e) {
      error = std::string("no UserError, but ") + e.what();
    }
    EXPECT_NE(error.find(c.phrase), std::string::npos) << shown << "\n" << error.substr(0, 300);
    EXPECT_TRUE(error.starts_with("a.fir:")) << shown << "\n" << error.substr(0, 300);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << shown;
  }
}

// The limits themselves.
TEST(HostileText, LargeProgramsAreRead) {
  for (const std::string& body :
       {inputOf("281474976710656"), inputOf(repeated("1, ", 63) + "1"), inputOf(numbered("i", " + ", 500)),
        inputOf(repeated("(", 250) + "i0" + repeated(")", 250)), "mesh M0 {x: 2} [0, 1048575]\n  " + inputOf("8"),
        inputOf("9223372036854775807 - i0")}) {
    EXPECT_NO_THROW((void)readProgram("fusion {\n  " + body + "\n}\n", "a.fir")) << body.substr(0, 120);
  }
}

}  // namespace
}  // namespace meshfuse
