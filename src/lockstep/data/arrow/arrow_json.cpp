#include "lockstep/data/arrow/arrow_json.h"

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string_view>

namespace lockstep::data::arrow_module {
namespace {

void append_text(std::string_view text, std::string& out) { append_json_string(text.data(), text.size(), out); }

template <class Number>
void append_number(Number value, std::string& out) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, end);
}

/// A real number stays one where it is read: 2.0, not 2.
void append_real(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const size_t start = out.size();
  append_number(value, out);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

void append_real(float value, std::string& out) { append_real(static_cast<double>(value), out); }

/// Dates, times, decimals and whatever else has a text of its own.
void append_other(const arrow::Array& array, int64_t index, std::string& out) {
  const auto scalar = array.GetScalar(index);
  if (!scalar.ok()) throw std::runtime_error(scalar.status().ToString());
  append_text((*scalar)->ToString(), out);
}

void append_range(const arrow::Array& values, int64_t begin, int64_t end, std::string& out) {
  out += '[';
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ',';
    append_json(values, i, out);
  }
  out += ']';
}

template <class List>
void append_list(const arrow::Array& array, int64_t index, std::string& out) {
  const auto& list = static_cast<const List&>(array);
  append_range(*list.values(), list.value_offset(index), list.value_offset(index) + list.value_length(index), out);
}

void append_struct(const arrow::StructArray& array, int64_t index, std::string& out) {
  const arrow::DataType& type = *array.type();
  out += '{';
  for (int field = 0; field < type.num_fields(); ++field) {
    if (field > 0) out += ',';
    append_text(type.field(field)->name(), out);
    out += ':';
    append_json(*array.field(field), index, out);
  }
  out += '}';
}

/// As pyarrow gives maps: a list of pairs.
void append_map(const arrow::MapArray& array, int64_t index, std::string& out) {
  const int64_t begin = array.value_offset(index);
  out += '[';
  for (int64_t i = begin; i < begin + array.value_length(index); ++i) {
    if (i > begin) out += ',';
    out += '[';
    append_json(*array.keys(), i, out);
    out += ',';
    append_json(*array.items(), i, out);
    out += ']';
  }
  out += ']';
}

void append_extension(const arrow::ExtensionArray& array, int64_t index, std::string& out) {
  const auto& type = static_cast<const arrow::ExtensionType&>(*array.type());
  if (type.extension_name() != "arrow.json") return append_json(*array.storage(), index, out);
  const auto scalar = array.storage()->GetScalar(index);
  if (!scalar.ok()) throw std::runtime_error(scalar.status().ToString());
  out += (*scalar)->ToString();  // JSON within JSON: checked with the row
}

template <class Strings>
void append_string(const arrow::Array& array, int64_t index, std::string& out) {
  append_text(static_cast<const Strings&>(array).GetView(index), out);
}

template <class Binaries>
void append_binary(const arrow::Array& array, int64_t index, std::string& out) {
  append_text("(" + std::to_string(static_cast<const Binaries&>(array).GetView(index).size()) + " bytes)", out);
}

template <class Numbers>
auto value_of(const arrow::Array& array, int64_t index) {
  return static_cast<const Numbers&>(array).Value(index);
}

}  // namespace

void append_json_string(const char* text, size_t size, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (size_t i = 0; i < size; ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json(const arrow::Array& array, int64_t index, std::string& out) {
  if (array.IsNull(index)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case arrow::Type::BOOL: out += value_of<arrow::BooleanArray>(array, index) ? "true" : "false"; return;
    case arrow::Type::INT8: return append_number(int{value_of<arrow::Int8Array>(array, index)}, out);
    case arrow::Type::UINT8: return append_number(int{value_of<arrow::UInt8Array>(array, index)}, out);
    case arrow::Type::INT16: return append_number(value_of<arrow::Int16Array>(array, index), out);
    case arrow::Type::UINT16: return append_number(value_of<arrow::UInt16Array>(array, index), out);
    case arrow::Type::INT32: return append_number(value_of<arrow::Int32Array>(array, index), out);
    case arrow::Type::UINT32: return append_number(value_of<arrow::UInt32Array>(array, index), out);
    case arrow::Type::INT64: return append_number(value_of<arrow::Int64Array>(array, index), out);
    case arrow::Type::UINT64: return append_number(value_of<arrow::UInt64Array>(array, index), out);
    case arrow::Type::FLOAT: return append_real(value_of<arrow::FloatArray>(array, index), out);
    case arrow::Type::DOUBLE: return append_real(value_of<arrow::DoubleArray>(array, index), out);
    case arrow::Type::STRING: return append_string<arrow::StringArray>(array, index, out);
    case arrow::Type::LARGE_STRING: return append_string<arrow::LargeStringArray>(array, index, out);
    case arrow::Type::STRING_VIEW: return append_string<arrow::StringViewArray>(array, index, out);
    case arrow::Type::BINARY: return append_binary<arrow::BinaryArray>(array, index, out);
    case arrow::Type::LARGE_BINARY: return append_binary<arrow::LargeBinaryArray>(array, index, out);
    case arrow::Type::BINARY_VIEW: return append_binary<arrow::BinaryViewArray>(array, index, out);
    case arrow::Type::FIXED_SIZE_BINARY: return append_binary<arrow::FixedSizeBinaryArray>(array, index, out);
    case arrow::Type::LIST: return append_list<arrow::ListArray>(array, index, out);
    case arrow::Type::LARGE_LIST: return append_list<arrow::LargeListArray>(array, index, out);
    case arrow::Type::LIST_VIEW: return append_list<arrow::ListViewArray>(array, index, out);
    case arrow::Type::LARGE_LIST_VIEW: return append_list<arrow::LargeListViewArray>(array, index, out);
    case arrow::Type::FIXED_SIZE_LIST: return append_list<arrow::FixedSizeListArray>(array, index, out);
    case arrow::Type::STRUCT: return append_struct(static_cast<const arrow::StructArray&>(array), index, out);
    case arrow::Type::MAP: return append_map(static_cast<const arrow::MapArray&>(array), index, out);
    case arrow::Type::EXTENSION: return append_extension(static_cast<const arrow::ExtensionArray&>(array), index, out);
    case arrow::Type::DICTIONARY: {
      const auto& encoded = static_cast<const arrow::DictionaryArray&>(array);
      return append_json(*encoded.dictionary(), encoded.GetValueIndex(index), out);
    }
    default: return append_other(array, index, out);
  }
}

}  // namespace lockstep::data::arrow_module
