#include "lockstep/report/command.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace lockstep::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ParsedReport parse(std::vector<std::string> words) { return parse_report(words, {}); }

std::string error_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ReportCommandLine, RunsAndOutput) {
  const ParsedReport one = parse({"out"});
  EXPECT_THAT(one.runs, ElementsAre("out"));
  EXPECT_EQ(one.options.output, "report.html");
  const ParsedReport more = parse({"a", "--output", "x.html", "b"});
  EXPECT_THAT(more.runs, ElementsAre("a", "b"));
  EXPECT_EQ(more.options.output, "x.html");
  EXPECT_THAT(parse({"--output=-", "a"}).options.output, "-");
  EXPECT_THAT(parse({"a", "--", "--b"}).runs, ElementsAre("a", "--b"));
}

TEST(ReportCommandLine, Help) {
  for (const char* flag : {"--help", "-h"}) {
    const ParsedReport parsed = parse({flag});
    ASSERT_TRUE(parsed.text);
    EXPECT_THAT(*parsed.text, AllOf(HasSubstr("lockstep report RUN"), HasSubstr("--output"), HasSubstr("report.html")));
  }
  EXPECT_TRUE(parse({"--help", "out"}).text);
}

TEST(ReportCommandLine, SaysWhatIsWrong) {
  EXPECT_THAT(error_of([] { parse({}); }, ErrorKind::Usage), HasSubstr("No run is named"));
  EXPECT_THAT(error_of([] { parse({"out", "--ouput", "x"}); }, ErrorKind::Usage), AllOf(HasSubstr("ouput"), HasSubstr("output")));
  EXPECT_THAT(error_of([] { parse({"out", "--output"}); }, ErrorKind::Usage), HasSubstr("--output"));
  EXPECT_THAT(error_of([] { parse({"out", "--output="}); }, ErrorKind::Usage), HasSubstr("--output"));
}

TEST(WriteReport, WritesAndReplacesItsOwnPage) {
  const TempFolder folder("lockstep-report");
  const std::string page = (folder.path() / "page.html").string();
  const ParsedReport parsed = parse({LOCKSTEP_TEST_DATA "/report/sft", "--output", page});
  write_report(parsed);
  const std::string html = read_file(page);
  EXPECT_THAT(html, HasSubstr(std::string(kGenerator)));
  write_report(parsed);
  EXPECT_EQ(read_file(page), html);
}

TEST(WriteReport, LeavesOtherFilesAlone) {
  const TempFolder folder("lockstep-report");
  const std::string page = (folder.path() / "notes.html").string();
  write_file_atomically(page, "<html>my notes</html>");
  const ParsedReport parsed = parse({LOCKSTEP_TEST_DATA "/report/sft", "--output", page});
  EXPECT_THAT(error_of([&] { write_report(parsed); }, ErrorKind::Usage), AllOf(HasSubstr(page), HasSubstr("not a report")));
  EXPECT_EQ(read_file(page), "<html>my notes</html>");
  const ParsedReport into_folder = parse({LOCKSTEP_TEST_DATA "/report/sft", "--output", folder.path().string()});
  EXPECT_THAT(error_of([&] { write_report(into_folder); }, ErrorKind::Usage), HasSubstr("not a report"));
  write_file_atomically(page, "");
  write_report(parsed);
  EXPECT_THAT(read_file(page), HasSubstr(std::string(kGenerator)));
}

TEST(WriteReport, SaysWhatItCannotReadOrWrite) {
  const TempFolder folder("lockstep-report");
  const std::string missing = (folder.path() / "none").string();
  EXPECT_THAT(error_of([&] { write_report(parse({missing, "--output", missing + ".html"})); }, ErrorKind::Data),
              HasSubstr(missing));
  EXPECT_FALSE(fs::exists(missing + ".html"));
  EXPECT_THAT(error_of([&] { write_report(parse({LOCKSTEP_TEST_DATA "/report/sft", "--output", missing + "/x.html"})); },
                       ErrorKind::Environment),
              HasSubstr(missing));
}

}  // namespace
}  // namespace lockstep::report
