#include "exec/profile.h"

#include <fmt/core.h>

#include "base/ranges.h"
#include "exec/json_text.h"

namespace meshfuse {

std::string Profile::text() const {
  const auto millisecondsOf = [&](bool communicates) {
    return 1e3 * sumOf(steps, [&](const StepTime& s) { return s.communicates() == communicates ? s.seconds : 0.0; });
  };
  std::string text =
      fmt::format("rank {}: {:.3f} ms a call, {:.3f} ms in kernels and library calls, {:.3f} ms in collectives\n", rank,
                  seconds * 1e3, millisecondsOf(false), millisecondsOf(true));
  text += fmt::format("{:>11} {:>7} {:>12} {:>12} {:>12}  step\n", "us", "GB/s", "read", "written", "received");
  for (const StepTime& s : steps) {
    const double bytes = static_cast<double>(s.communicates() ? s.bytesReceived : s.bytesRead + s.bytesWritten);
    text += fmt::format("{:>11.1f} {:>7.2f} {:>12} {:>12} {:>12}  {}\n", s.seconds * 1e6,
                        s.seconds > 0 ? bytes / s.seconds * 1e-9 : 0.0, s.bytesRead, s.bytesWritten,
                        s.communicates() ? std::to_string(s.bytesReceived) : "", s.name);
  }
  return text;
}

std::string Profile::json() const {
  const auto stepJson = [](const StepTime& s) {
    return fmt::format(
        R"({{"name":{},"kind":"{}","seconds":{:.9f},"bytes_read":{},"bytes_written":{},"bytes_received":{}}})",
        jsonText(s.name), s.kind, s.seconds, s.bytesRead, s.bytesWritten, s.bytesReceived);
  };
  return fmt::format("{{\"rank\":{},\"seconds\":{:.9f},\"steps\":[\n{}]}}\n", rank, seconds,
                     joined(steps, ",\n", stepJson));
}

}  // namespace meshfuse
