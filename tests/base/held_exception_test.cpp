// Threads that hold one exception: the last of them destroys it. Under ThreadSanitizer this is no race.
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace meshfuse {
namespace {

TEST(HeldException, IsDestroyedByTheLastOfItsThreads) {
  const std::string text = "a text that is longer than a string holds without memory of its own";
  for (int64_t round = 0; round < 100; round++) {
    std::exception_ptr error;
    try {
      throw UserError(text);
    } catch (...) {
      error = std::current_exception();
    }
    std::vector<std::string> seen(4);
    std::vector<std::jthread> threads;
    for (std::string& mine : seen) {
      threads.emplace_back([held = error, &mine]() mutable {
        try {
          std::rethrow_exception(std::move(held));
        } catch (const UserError& e) {
          mine = e.what();
        }
      });
    }
    error = nullptr;
    threads.clear();
    for (const std::string& mine : seen) {
      EXPECT_NE(mine.find(text), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace meshfuse
