#include "lockstep/launch/line_multiplexer.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

/// Collects what a multiplexer writes.
struct LinesScene {
  explicit LinesScene(int num_workers, LineMultiplexer::Targets targets = {})
      : lines(num_workers, targets,
              [this](Stream stream, std::string_view bytes) { (stream == Stream::Out ? out : err).append(bytes); }) {}
  std::string out;
  std::string err;
  LineMultiplexer lines;
};

constexpr LineMultiplexer::Targets kTerminal = {.out_is_terminal = true, .err_is_terminal = true, .same = true};

TEST(LineMultiplexer, OneWorkerPassesThrough) {
  LinesScene scene(1);
  scene.lines.feed(0, Stream::Out, "10%\r");
  EXPECT_EQ(scene.out, "10%\r");
  scene.lines.feed(0, Stream::Out, "half");
  scene.lines.finish(0, Stream::Out);
  EXPECT_EQ(scene.out, "10%\rhalf");
}

TEST(LineMultiplexer, InterleavedPartialLinesStayWhole) {
  LinesScene scene(3);
  scene.lines.feed(0, Stream::Out, "ze");
  scene.lines.feed(1, Stream::Out, "o");
  scene.lines.feed(2, Stream::Out, "two\ntw");
  scene.lines.feed(0, Stream::Out, "ro\n");
  scene.lines.feed(1, Stream::Out, "ne\n");
  scene.lines.feed(2, Stream::Err, "error\n");
  scene.lines.feed(2, Stream::Out, "o again\n");
  EXPECT_EQ(scene.out, "[rank2] two\nzero\n[rank1] one\n[rank2] two again\n");
  EXPECT_EQ(scene.err, "[rank2] error\n");
}

TEST(LineMultiplexer, UnfinishedLastLinesAreFlushedOnLinesOfTheirOwn) {
  LinesScene scene(3);
  scene.lines.feed(0, Stream::Out, "a");
  scene.lines.feed(1, Stream::Out, "b");
  scene.lines.finish(1, Stream::Out);
  scene.lines.finish(0, Stream::Out);
  scene.lines.feed(2, Stream::Out, "c\n");
  EXPECT_EQ(scene.out, "[rank1] b\na\n[rank2] c\n");
}

TEST(LineMultiplexer, ABarIsErasedAndDrawnAgain) {
  LinesScene scene(2, kTerminal);
  scene.lines.feed(0, Stream::Err, "start\n\r10%");
  scene.lines.feed(0, Stream::Err, "\r20%");
  scene.err.clear();
  scene.lines.feed(1, Stream::Err, "warning\n");
  EXPECT_EQ(scene.err, "\r\x1b[K[rank1] warning\n\r20%");
  scene.err.clear();
  scene.lines.print(Stream::Err, "lockstep: note\n");
  EXPECT_EQ(scene.err, "\r\x1b[Klockstep: note\n\r20%");
  scene.err.clear();
  scene.lines.finish(0, Stream::Err);
  scene.lines.print(Stream::Err, "report\n");
  EXPECT_EQ(scene.err, "\nreport\n") << "a bar of a worker that has ended stays above";
}

TEST(LineMultiplexer, ABarThatReturnsAtItsEndIsDrawnAgainToo) {
  LinesScene scene(2, kTerminal);
  scene.lines.feed(0, Stream::Err, "10%\r20%\r");
  scene.err.clear();
  scene.lines.feed(1, Stream::Err, "warning\n");
  EXPECT_EQ(scene.err, "\r\x1b[K[rank1] warning\n\r20%\r");
}

TEST(LineMultiplexer, AFinishedLineNeedsNoErasing) {
  LinesScene scene(2, kTerminal);
  scene.lines.feed(0, Stream::Err, "\r10%\n");
  scene.err.clear();
  scene.lines.feed(1, Stream::Err, "warning\n");
  EXPECT_EQ(scene.err, "[rank1] warning\n");
}

TEST(LineMultiplexer, ALineWithoutEndIsPassedOnInPiecesAndBrokenForOthers) {
  LinesScene scene(3);
  const std::string piece(LineMultiplexer::kMaxLineBytes + 1, 'x');
  scene.lines.feed(1, Stream::Out, piece);
  EXPECT_EQ(scene.out, "[rank1] " + piece) << "memory stays bounded";
  scene.lines.feed(1, Stream::Out, piece);
  EXPECT_EQ(scene.out, "[rank1] " + piece + piece);
  scene.out.clear();
  scene.lines.feed(2, Stream::Out, "two\n");
  scene.lines.feed(1, Stream::Out, "y\nz\n");
  EXPECT_EQ(scene.out, "\n[rank2] two\n[rank1] y\n[rank1] z\n");
}

TEST(LineMultiplexer, TheEndOfALongLineHasNoPrefix) {
  LinesScene scene(2);
  const std::string piece(LineMultiplexer::kMaxLineBytes + 1, 'x');
  scene.lines.feed(1, Stream::Out, piece);
  scene.out.clear();
  scene.lines.feed(1, Stream::Out, "y\nz\n");
  EXPECT_EQ(scene.out, "y\n[rank1] z\n");
}

TEST(LineMultiplexer, EmptyLinesAreLines) {
  LinesScene scene(2);
  scene.lines.feed(1, Stream::Out, "\n\na\n");
  EXPECT_EQ(scene.out, "[rank1] \n[rank1] \n[rank1] a\n");
}

TEST(LineMultiplexer, PrefixesOfTheCallersStandBeforeEveryLine) {
  std::string out;
  LineMultiplexer lines(1, kTerminal, [&](Stream, std::string_view bytes) { out.append(bytes); }, {"[default0]:"});
  lines.feed(0, Stream::Out, "one\ntw");
  lines.feed(0, Stream::Out, "o\n\nhalf");
  lines.finish(0, Stream::Out);
  EXPECT_EQ(out, "[default0]:one\n[default0]:two\n[default0]:\n[default0]:half");
}

}  // namespace
}  // namespace lockstep::launch
