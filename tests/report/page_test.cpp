#include "lockstep/report/page.h"

#include "lockstep/report/html.h"
#include "report/html_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Run sft_run() { return read_runs({LOCKSTEP_TEST_DATA "/report/sft"})[0]; }

/// All elements and attributes that a page is made of; none of them can load or run anything under its policy.
const std::set<std::string> kElements = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "main", "section", "article", "span",
    "bdi", "dl", "dt", "dd", "small", "b", "ul", "li", "figure", "figcaption", "svg", "g", "path", "text", "circle", "rect",
    "nav", "label", "input", "div", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "p", "footer"};
const std::set<std::string> kAttributes = {
    "lang", "charset", "name", "content", "http-equiv", "class", "viewBox", "role", "aria-label", "d", "x", "y", "cx", "cy",
    "r", "rx", "width", "height", "text-anchor", "scope", "type", "id", "checked"};

HtmlFound read_safely(const std::string& html) {
  HtmlFound found = read_html(html);
  EXPECT_THAT(found.complaints, IsEmpty());
  for (const auto& [element, count] : found.elements) EXPECT_TRUE(kElements.contains(element)) << element;
  for (const std::string& attribute : found.attributes) EXPECT_TRUE(kAttributes.contains(attribute)) << attribute;
  return found;
}

TEST(EscapeHtml, EscapesAndReplaces) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
  EXPECT_EQ(escape_html("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(escape_html(std::string("\0\x1b[31m\x7f", 7)), "\uFFFD\uFFFD[31m\uFFFD");
  EXPECT_EQ(escape_html("\u00e9\u20ac\U0001F600"), "\u00e9\u20ac\U0001F600");
  // Not UTF-8: a lone continuation, a cut character, an overlong "<", a surrogate, beyond the last.
  EXPECT_EQ(escape_html("\x80"), "\uFFFD");
  EXPECT_EQ(escape_html("\xE2\x82"), "\uFFFD\uFFFD");
  EXPECT_EQ(escape_html("\xC0\xBC"), "\uFFFD\uFFFD");
  EXPECT_EQ(escape_html("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(escape_html("\xF4\x90\x80\x80<"), "\uFFFD\uFFFD\uFFFD\uFFFD&lt;");
}

TEST(NumberText, IsShort) {
  EXPECT_EQ(number_text(0.75), "0.75");
  EXPECT_EQ(number_text(1.0 / 3), "0.33333");
  EXPECT_EQ(number_text(2e-5), "2e-05");
  EXPECT_EQ(number_text(1234567.8), "1,234,568");
  EXPECT_EQ(number_text(-12345), "-12,345");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "not finite");
}

TEST(Page, ShowsARun) {
  const std::string html = page_html({sft_run()});
  const HtmlFound found = read_safely(html);
  for (const char* text :
       {"Training run", "6 of 6", "Training loss", "Learning rate", "Gradient norm", "Throughput", "Memory of rank 0",
        "Options that were given", "max_length", "command line", "more, at their defaults", "Model, data and plan",
        "<|im_end|> is trained on in every row", "samples per update24", "training took0.4 s"}) {
    EXPECT_THAT(found.text, HasSubstr(text));
  }
  EXPECT_THAT(html, AllOf(HasSubstr("name=\"viewport\" content=\"width=device-width, initial-scale=1\""),
                          HasSubstr("prefers-color-scheme:dark"), HasSubstr("default-src 'none'")));
  EXPECT_EQ(found.elements.count("nav"), 0U) << "one run needs no legend";
  EXPECT_EQ(found.elements.at("svg"), 8);
}

TEST(Page, NeedsNothingFromElsewhere) {
  const std::string html = page_html({sft_run(), sft_run()});
  const HtmlFound found = read_safely(html);
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:")), Not(HasSubstr("url(")),
                          Not(HasSubstr("@import")), Not(HasSubstr("<script"))));
  EXPECT_EQ(found.attributes.count("src") + found.attributes.count("href"), 0U);
}

TEST(Page, LaysRunsOverEachOther) {
  report::Run first = sft_run(), second = sft_run();
  second.name = "other";
  second.options["max_length"].value = "128";
  second.evaluations["eval_accuracy"] = {{3, 0.5}, {6, 0.75}};
  second.options.erase("dtype");
  const std::string html = page_html({first, second});
  const HtmlFound found = read_safely(html);
  EXPECT_EQ(found.elements.at("input"), 2);
  EXPECT_THAT(html, AllOf(HasSubstr("body:has(#show1:not(:checked)) .r1{display:none}"),
                          HasSubstr("class=\"curve r0 c0\""), HasSubstr("class=\"curve r1 c1\"")));
  EXPECT_EQ(found.elements.at("svg"), 9) << "one more, for the evaluation";
  EXPECT_THAT(found.text, AllOf(HasSubstr("2 training runs"), HasSubstr("eval_accuracy0.75 at update 6"),
                                HasSubstr("that were given or differ"), HasSubstr("not known")));
  EXPECT_THAT(html, HasSubstr("<tr class=\"differs\"><th scope=\"row\"><bdi>max_length</bdi>"));
}

TEST(Page, TextsOfARunStayTexts) {
  const std::vector<std::string> hostile = {
      "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "' onmouseover='alert(1)", "</style><svg onload=alert(1)>",
      "</title></td></table>", "&lt;b&gt;", "<!--", "]]>", "javascript:alert(1)", "\xFF\xFE<b>", "\u202E<bdo>", "{}{{0}}%s",
      std::string("\0<i>", 4)};
  for (const std::string& text : hostile) {
    report::Run run = sft_run();
    run.name = text;
    run.evaluations["eval_" + text] = {{1, 0.5}, {2, 1}};
    run.options[text] = {text, text};
    run.option_names.push_back(text);
    run.start_report = {text, "a " + text};
    run.problems = {text};
    report::Run other = run;
    other.options[text].value += text;
    const HtmlFound found = read_safely(page_html({run, other}));
    EXPECT_EQ(found.elements.count("script") + found.elements.count("img") + found.elements.count("bdo"), 0U);
    EXPECT_EQ(found.elements.at("svg"), 9) << text;
    EXPECT_EQ(found.elements.at("title"), 1);
    EXPECT_EQ(found.elements.at("style"), 1);
  }
  report::Run run = sft_run();
  run.name = "<script>\"'&";
  EXPECT_THAT(read_html(page_html({run})).text, HasSubstr("<script>\"'&")) << "shown as it is written";
}

TEST(Page, ShowsWhatIsWrong) {
  report::Run run;
  run.name = "broken";
  read_metrics("x\ny\n{\"step\":1,\"loss\":2}\n{\"st", run);
  run.facts["total_updates"] = 10;
  const HtmlFound found = read_safely(page_html({run}));
  EXPECT_THAT(found.text, AllOf(HasSubstr("2 lines of metrics.jsonl could not be read"), HasSubstr("The last line of"),
                                HasSubstr("1 of 10 not finished")));
}

TEST(Page, OfARunWithoutUpdates) {
  report::Run run;
  run.name = "new";
  EXPECT_THAT(read_safely(page_html({run})).text, HasSubstr("No update is logged yet."));
}

TEST(Page, DrawsAtMostSomeEvaluations) {
  report::Run run = sft_run();
  for (int i = 0; i < 100; ++i) run.evaluations["eval_" + std::to_string(i)] = {{1, 1}, {2, 2}};
  const HtmlFound found = read_safely(page_html({run}));
  EXPECT_EQ(found.elements.at("svg"), 8 + 24);
  EXPECT_THAT(found.text, HasSubstr("24 of 100 evaluation metrics are drawn"));
}

TEST(Page, StaysSmallForLongRuns) {
  std::vector<report::Run> runs(4);
  for (report::Run& run : runs) {
    run = sft_run();
    for (auto& [key, points] : run.training) {
      points.clear();
      for (int i = 1; i <= 100000; ++i) points.push_back({static_cast<double>(i), 1.0 / i});
    }
  }
  EXPECT_LT(page_html(runs).size(), 1000000U);
}

}  // namespace
}  // namespace lockstep::report
