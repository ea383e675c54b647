#pragma once

#include "lockstep/report/run_files.h"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

/// One HTML page of all runs: what happened, curves laid over each other, evaluations, options with their origins, what
/// was said of the data at the start. Self-contained: inline CSS and SVG, no script, and a content security policy that
/// lets a browser load and run nothing. Every text of the runs is escaped. For phones and wide screens, light and dark.
std::string page_html(const std::vector<Run>& runs);

/// In the head of every page; tells one from another HTML file.
inline constexpr std::string_view kGenerator = "<meta name=\"generator\" content=\"lockstep report\">";

// The parts of the page.
std::string style_css();
std::string legend_html(const std::vector<Run>& runs);
std::string cards_html(const std::vector<Run>& runs);
std::string charts_html(const std::vector<Run>& runs);
std::string options_html(const std::vector<Run>& runs);
std::string start_reports_html(const std::vector<Run>& runs);

}  // namespace lockstep::report
