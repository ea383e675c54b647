#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

enum class Stream { Out = 0, Err = 1 };

/// Joins the output of several workers line by line. Bytes in, bytes out, no system call. Not thread-safe.
///
/// One worker: its bytes pass through as they come. Several: whole lines, those of ranks above 0 behind "[rank1] ".
/// On a terminal rank 0's bytes pass through at once, since it draws a progress bar; the lines of others erase the bar
/// and draw it again below. A line longer than kMaxLineBytes is passed on in pieces; when another writer must come in
/// between, the line is broken rather than mixed.
///
/// With prefixes of their own, all workers' output is passed on by whole lines, each behind its worker's prefix.
class LineMultiplexer {
 public:
  static constexpr size_t kMaxLineBytes = 64 * 1024;

  struct Targets {
    bool out_is_terminal = false;
    bool err_is_terminal = false;
    bool same = false;  ///< both streams show up in one place (2>&1, or one terminal)
  };
  using Write = std::function<void(Stream stream, std::string_view bytes)>;

  /// `prefixes`: by rank, or none at all.
  LineMultiplexer(int num_workers, Targets targets, Write write, std::vector<std::string> prefixes = {});

  /// What worker `rank` wrote to `stream`.
  void feed(int rank, Stream stream, std::string_view bytes);
  /// Worker `rank` closed `stream`: an unfinished last line is passed on as it is.
  void finish(int rank, Stream stream);
  /// Whole lines of the front program itself.
  void print(Stream stream, std::string_view lines);

 private:
  struct Source {
    int rank = 0;
    Stream stream = Stream::Out;
    bool raw = false;
    std::string prefix;
    std::string partial;  ///< of a source that is not raw: the line that has not ended yet
  };
  /// A place where output shows up, and the source whose unfinished line stands there.
  struct Screen {
    bool is_terminal = false;
    const Source* mid_line = nullptr;
    std::string bar;  ///< of a raw source on a terminal: what draws its unfinished line again
  };

  Source& source(int rank, Stream stream);
  Screen& screen(Stream stream);
  void feed_raw(Source& from, std::string_view bytes);
  void write_piece(const Source& from, std::string_view piece);
  /// Makes room for somebody else's whole lines, writes them, restores what stood there.
  void write_lines(const Source* from, Stream stream, std::string_view lines);

  Write write_;
  std::array<Screen, 2> screens_;
  bool same_;
  std::vector<Source> sources_;  ///< by rank, then stream
};

}  // namespace lockstep::launch
