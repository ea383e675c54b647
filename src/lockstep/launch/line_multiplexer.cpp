#include "lockstep/launch/line_multiplexer.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::launch {

namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

std::string usual_prefix(int rank) { return rank == 0 ? std::string() : fmt::format("[rank{}] ", rank); }

/// What draws the unfinished line again, given what stood there and what came: the text after the last newline, less
/// what a carriage return has overwritten.
void update_bar(std::string& bar, std::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  if (newline != std::string_view::npos) {
    bar.clear();
    bytes.remove_prefix(newline + 1);
  }
  bar.append(bytes);
  // A return at the very end has overwritten nothing yet.
  const size_t last_text = bar.find_last_not_of('\r');
  if (last_text == std::string::npos) return;
  const size_t overwritten = bar.rfind('\r', last_text);
  if (overwritten != std::string::npos) bar.erase(0, overwritten);
  if (bar.size() > LineMultiplexer::kMaxLineBytes) bar.erase(0, bar.size() - LineMultiplexer::kMaxLineBytes);
}

}  // namespace

LineMultiplexer::LineMultiplexer(int num_workers, Targets targets, Write write, std::vector<std::string> prefixes)
    : write_(std::move(write)), same_(targets.same) {
  screens_[0].is_terminal = targets.out_is_terminal;
  screens_[1].is_terminal = targets.err_is_terminal;
  for (int rank = 0; rank < num_workers; ++rank) {
    for (const Stream stream : {Stream::Out, Stream::Err}) {
      Source& added = sources_.emplace_back();
      added.rank = rank;
      added.stream = stream;
      added.prefix = prefixes.empty() ? usual_prefix(rank) : prefixes[static_cast<size_t>(rank)];
      added.raw = prefixes.empty() && (num_workers == 1 || (rank == 0 && screen(stream).is_terminal));
    }
  }
}

LineMultiplexer::Source& LineMultiplexer::source(int rank, Stream stream) {
  return sources_[2 * static_cast<size_t>(rank) + static_cast<size_t>(stream)];
}

LineMultiplexer::Screen& LineMultiplexer::screen(Stream stream) {
  return screens_[same_ ? 0 : static_cast<size_t>(stream)];
}

void LineMultiplexer::feed(int rank, Stream stream, std::string_view bytes) {
  Source& from = source(rank, stream);
  if (bytes.empty()) return;
  if (from.raw) return feed_raw(from, bytes);

  std::string lines;
  bool continues = screen(stream).mid_line == &from;
  for (size_t newline = bytes.find('\n'); newline != std::string_view::npos; newline = bytes.find('\n')) {
    if (!continues) lines += from.prefix;
    lines.append(from.partial).append(bytes.substr(0, newline + 1));
    from.partial.clear();
    bytes.remove_prefix(newline + 1);
    continues = false;
  }
  if (!lines.empty()) write_lines(&from, stream, lines);
  from.partial.append(bytes);
  if (from.partial.size() > kMaxLineBytes) write_piece(from, std::exchange(from.partial, {}));
}

void LineMultiplexer::feed_raw(Source& from, std::string_view bytes) {
  Screen& to = screen(from.stream);
  // A raw source never waits; its two streams share a screen only on terms it has chosen itself.
  const bool breaks_in = to.mid_line != nullptr && to.mid_line->rank != from.rank;
  if (breaks_in) write_(to.mid_line->stream, "\n");
  write_(from.stream, bytes);
  update_bar(to.bar, bytes);
  to.mid_line = to.bar.empty() ? nullptr : &from;
}

void LineMultiplexer::write_piece(const Source& from, std::string_view piece) {
  Screen& to = screen(from.stream);
  if (to.mid_line != &from) {
    if (to.mid_line != nullptr) write_(to.mid_line->stream, "\n");
    if (!from.prefix.empty()) write_(from.stream, from.prefix);
  }
  write_(from.stream, piece);
  to.mid_line = &from;
  to.bar.clear();
}

void LineMultiplexer::write_lines(const Source* from, Stream stream, std::string_view lines) {
  Screen& to = screen(stream);
  const Source* interrupted = to.mid_line == from ? nullptr : to.mid_line;
  if (interrupted == nullptr) {
    write_(stream, lines);
    to.mid_line = nullptr;
    return;
  }
  const bool draws_again = interrupted->raw && to.is_terminal && !to.bar.empty();
  write_(interrupted->stream, draws_again ? kEraseLine : "\n");
  write_(stream, lines);
  if (draws_again) {
    write_(interrupted->stream, to.bar);
  } else {
    to.mid_line = nullptr;
  }
}

void LineMultiplexer::finish(int rank, Stream stream) {
  Source& from = source(rank, stream);
  if (!from.partial.empty()) write_piece(from, std::exchange(from.partial, {}));
  // A finished source draws nothing again: whoever comes next starts on a line of its own.
  Screen& to = screen(stream);
  if (to.mid_line == &from) to.bar.clear();
}

void LineMultiplexer::print(Stream stream, std::string_view lines) { write_lines(nullptr, stream, lines); }

}  // namespace lockstep::launch
