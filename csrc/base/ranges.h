// Operations on ranges that the standard library of C++20 lacks.
//
//   mapped(rows, &Row::name)                 {"a", "b"}    a vector of the results; mapped<int>(...) converts them
//   filtered({1, 2, 3}, isOdd)               {1, 3}
//   sumOf({1, 2, 3})                         6; sumOf(tensors, bytesOf) adds the results
//   productOf({2, 3, 4})                     24; 1 without elements
//   contains({1, 2, 3}, 2)                   true
//   positionIn({'a', 'b'}, 'b')              1; the number of elements if there is none
//   indices(tensors)                         0, 1, ... as int64_t
//   joined({1, 2}, ", ", toString)           "1, 2"
//   append(all, more)                        adds the elements of `more` to the vector `all`
//
// Functions are anything that std::invoke accepts: also members. Sums and products have the type of the results and may overflow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace meshfuse {

template <class F, class Range>
using ResultOf = std::remove_cvref_t<std::invoke_result_t<F&, std::ranges::range_reference_t<Range>>>;

template <class Element = void, std::ranges::input_range Range, class F>
[[nodiscard]] auto mapped(Range&& range, F f) {
  using Out = std::conditional_t<std::is_void_v<Element>, ResultOf<F, Range>, Element>;
  std::vector<Out> out;
  if constexpr (std::ranges::sized_range<Range>) {
    out.reserve(std::ranges::size(range));
  }
  for (auto&& x : range) {
    out.push_back(static_cast<Out>(std::invoke(f, std::forward<decltype(x)>(x))));
  }
  return out;
}

template <std::ranges::input_range Range, class F>
[[nodiscard]] auto filtered(Range&& range, F keep) {
  std::vector<std::ranges::range_value_t<Range>> out;
  std::ranges::copy_if(range, std::back_inserter(out), std::ref(keep));
  return out;
}

template <std::ranges::input_range Range, class F = std::identity>
[[nodiscard]] auto sumOf(Range&& range, F f = {}) {
  ResultOf<F, Range> sum{};
  for (auto&& x : range) {
    sum += std::invoke(f, x);
  }
  return sum;
}

template <std::ranges::input_range Range, class F = std::identity>
[[nodiscard]] auto productOf(Range&& range, F f = {}) {
  ResultOf<F, Range> product{1};
  for (auto&& x : range) {
    product *= std::invoke(f, x);
  }
  return product;
}

template <std::ranges::input_range Range, class T>
[[nodiscard]] bool contains(Range&& range, const T& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

template <std::ranges::forward_range Range, class T>
[[nodiscard]] int64_t positionIn(Range&& range, const T& value) {
  return std::ranges::distance(std::ranges::begin(range), std::ranges::find(range, value));
}

template <std::ranges::sized_range Range>
[[nodiscard]] auto indices(const Range& range) {
  return std::views::iota(int64_t{0}, static_cast<int64_t>(std::ranges::size(range)));
}

template <std::ranges::input_range Range, class F = std::identity>
[[nodiscard]] std::string joined(Range&& range, std::string_view separator, F f = {}) {
  std::string text;
  bool isFirst = true;
  for (auto&& x : range) {
    text += std::exchange(isFirst, false) ? std::string_view() : separator;
    text += std::invoke(f, x);
  }
  return text;
}

template <class T, std::ranges::input_range Range>
void append(std::vector<T>& all, Range&& more) {
  for (auto&& x : more) {
    all.push_back(std::forward<decltype(x)>(x));
  }
}

}  // namespace meshfuse
