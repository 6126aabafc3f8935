#include "tools/xml.h"

#include <fmt/core.h>

#include <cctype>
#include <set>
#include <string_view>
#include <vector>

namespace meshfuse {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::string error() {
    const std::string_view doctype = "<!DOCTYPE html>\n";
    at_ = text_.starts_with(doctype) ? doctype.size() : 0;
    while (at_ < text_.size() && problem_.empty()) {
      if (text_[at_] == '<') {
        tag();
      } else {
        characters('<');
      }
    }
    if (problem_.empty() && (!open_.empty() || roots_ != 1)) {
      fail(open_.empty() ? fmt::format("{} root elements", roots_) : fmt::format("<{}> is not closed", open_.back()));
    }
    return problem_;
  }

 private:
  void fail(const std::string& what) {
    if (problem_.empty()) {
      problem_ = fmt::format("{} at \"{}\"", what, text_.substr(at_, 60));
    }
  }
  // Up to the character that ends them.
  void characters(char end) {
    while (at_ < text_.size() && text_[at_] != end && problem_.empty()) {
      const char c = text_[at_];
      if (c == '<') {
        fail("a bare <");
      } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
        fail("a control character");
      } else if (c == '&') {
        const size_t semicolon = text_.find(';', at_);
        const std::string_view entity = text_.substr(at_ + 1, semicolon == text_.npos ? 0 : semicolon - at_ - 1);
        static const std::set<std::string_view> kKnown{"lt", "gt", "amp", "quot", "apos"};
        if (!kKnown.contains(entity) && !entity.starts_with('#')) {
          fail("a bare & or an unknown entity");
        }
      } else if (open_.empty() && std::isspace(static_cast<unsigned char>(c)) == 0) {
        fail("text outside the root element");
      }
      at_++;
    }
  }
  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-')) {
      at_++;
    }
    if (begin == at_) {
      fail("a name is missing");
    }
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool take(std::string_view what) {
    const bool is = text_.substr(at_).starts_with(what);
    at_ += is ? what.size() : 0;
    return is;
  }
  void spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      at_++;
    }
  }
  void tag() {
    if (take("</")) {
      const std::string element = name();
      if (open_.empty() || open_.back() != element) {
        fail(fmt::format("</{}> closes <{}>", element, open_.empty() ? "nothing" : open_.back()));
      } else {
        open_.pop_back();
      }
      if (!take(">")) {
        fail("> is missing");
      }
      return;
    }
    take("<");
    const std::string element = name();
    roots_ += open_.empty() ? 1 : 0;
    std::set<std::string> attributes;
    for (;;) {
      spaces();
      if (take("/>")) {
        return;
      }
      if (take(">")) {
        open_.push_back(element);
        return;
      }
      if (!attributes.insert(name()).second) {
        fail("an attribute twice");
      }
      if (!take("=\"")) {
        fail("=\" is missing");
      }
      open_.push_back(element);  // text of an attribute is inside
      characters('"');
      open_.pop_back();
      if (!problem_.empty() || !take("\"")) {
        fail("\" is missing");
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string problem_;
};

}  // namespace

std::string xmlError(const std::string& text) { return Reader(text).error(); }

}  // namespace meshfuse
