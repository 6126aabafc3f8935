// Colours of the terminal, and numbers in readable units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace meshfuse {

// Colours are on if the stream is a terminal, NO_COLOR is not set and TERM is not "dumb"; not under mpirun, which gives each process a
// terminal, wherever its output then goes.
class Terminal {
 public:
  explicit Terminal(int64_t fileDescriptor);
  std::string heading(std::string_view text) const { return painted("1", text); }
  std::string good(std::string_view text) const { return painted("32", text); }
  std::string bad(std::string_view text) const { return painted("31;1", text); }
  std::string quiet(std::string_view text) const { return painted("2", text); }

 private:
  std::string painted(std::string_view code, std::string_view text) const;
  bool colours_;
};

// The number in the largest of B, KiB, MiB, GiB and TiB in which it is at least 1, and this unit.
[[nodiscard]] std::pair<double, std::string_view> inUnits(double bytes);
// "12.5 KiB (12800 bytes)": rounded and exact; "800 bytes" below 1 KiB.
[[nodiscard]] std::string bytesText(int64_t bytes);

}  // namespace meshfuse
