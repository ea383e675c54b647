#pragma once

#include <string>
#include <string_view>

namespace lockstep::report {

/// `text` as the content of an element or of a quoted attribute: the five characters of HTML escaped, control characters
/// other than newline and tab, and bytes that are not UTF-8, replaced by U+FFFD.
std::string escape_html(std::string_view text);

/// The same in a <bdi>, so that right-to-left marks in a name do not turn round what stands beside it.
std::string user_text(std::string_view text);

/// For people: 5 significant digits; "3.2e-05", "0.75", "12,345" (from 10,000 whole numbers, grouped), "not finite".
std::string number_text(double value);

}  // namespace lockstep::report
