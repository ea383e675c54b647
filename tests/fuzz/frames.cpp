#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/net/frame.h"

#include <algorithm>

namespace {

using namespace lockstep;
using net::FieldReader;
using net::FieldWriter;
using net::ParsedFrame;

enum class Choice : uint8_t { A, B, C };

/// What parse_frame() says of the first bytes must not change with what follows them.
void check_every_prefix(std::string_view bytes, size_t limit) {
  const ParsedFrame whole = net::parse_frame(bytes, limit);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const ParsedFrame part = net::parse_frame(bytes.substr(0, size), limit);
    const bool enough = whole.state == ParsedFrame::State::TooLarge ? size >= 4 : size >= whole.frame.size_bytes;
    const bool tells = whole.state != ParsedFrame::State::Incomplete && enough;
    LS_CHECK(part.state == (tells ? whole.state : ParsedFrame::State::Incomplete), "{} of {} bytes", size, bytes.size());
  }
  if (whole.state == ParsedFrame::State::TooLarge) LS_CHECK(whole.length > limit, "{} bytes", whole.length);
  if (whole.state != ParsedFrame::State::Complete) return;
  LS_CHECK(whole.frame.payload.size() == whole.length && whole.length <= limit, "{} bytes", whole.length);
  LS_CHECK(whole.frame.payload.data() == bytes.data() + 5 && whole.frame.size_bytes <= bytes.size(), "outside");
}

/// Reads one value and writes it again.
template <class T>
void copy(FieldReader& reader, FieldWriter& writer) {
  T value{};
  reader(value);
  LS_CHECK(reader.ok() || value == T{}, "a value came out of a field that does not fit");
  if constexpr (std::is_same_v<T, std::string>) writer(std::string_view(value));
  else writer(value);
}

void copy_field(uint8_t kind, FieldReader& reader, FieldWriter& writer) {
  switch (kind % 10) {
    case 0: return copy<bool>(reader, writer);
    case 1: return copy<uint8_t>(reader, writer);
    case 2: return copy<uint16_t>(reader, writer);
    case 3: return copy<uint32_t>(reader, writer);
    case 4: return copy<uint64_t>(reader, writer);
    case 5: return copy<int32_t>(reader, writer);
    case 6: return copy<int64_t>(reader, writer);
    case 7: return copy<std::string>(reader, writer);
    case 8: return copy<std::vector<std::string>>(reader, writer);
    default: break;
  }
  Choice choice{};
  reader.choice(choice, Choice::C);
  LS_CHECK(choice <= Choice::C, "choice {}", static_cast<int>(choice));
  writer.choice(choice, Choice::C);
}

}  // namespace

int fuzz_frames(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.size() < 2) return 0;
  const size_t limit = static_cast<uint8_t>(input[0]);
  const std::string_view fields = input.substr(2, static_cast<uint8_t>(input[1]) % 32);
  input.remove_prefix(2 + fields.size());
  check_every_prefix(input, limit);

  FieldReader reader(input);
  FieldWriter writer;
  for (const char field : fields) copy_field(static_cast<uint8_t>(field), reader, writer);
  reader.finish();
  if (!reader.ok()) return 0;
  LS_CHECK(writer.bytes() == input, "{} bytes are written as {} others", input.size(), writer.bytes().size());
  const std::string framed = writer.frame(7);
  const ParsedFrame parsed = net::parse_frame(framed, input.size());
  LS_CHECK(parsed.state == ParsedFrame::State::Complete && parsed.frame.type == 7 && parsed.frame.payload == input,
           "a frame is read differently");
  return 0;
}
