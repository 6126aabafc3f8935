// A strict reader of XML, to say whether a page is well-formed.
#pragma once

#include <string>

namespace meshfuse {

// What is wrong, with its place; empty if the text is one well-formed element: tags closed in order, attributes quoted and not
// repeated, only the five entities of XML and numbers. CDATA, comments and processing instructions are refused.
std::string xmlError(const std::string& text);

}  // namespace meshfuse
