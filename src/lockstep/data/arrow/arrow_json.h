#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>

namespace lockstep::data::arrow_module {

/// Appends the value at `index` as JSON: null, boolean, number (not finite: null), string, array, object. Values of the
/// extension type arrow.json are what their text says; other extensions are their storage. Binary values become
/// "(N bytes)": they are never trained on. Times, dates and decimals become their text. Throws std::runtime_error where Arrow
/// refuses.
void append_json(const arrow::Array& array, int64_t index, std::string& out);

void append_json_string(const char* text, size_t size, std::string& out);

}  // namespace lockstep::data::arrow_module
