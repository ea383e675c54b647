#include "lockstep/report/html.h"
#include "lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::report {
namespace {

/// Every option of any run, in the order in which the runs name them.
std::vector<std::string> all_option_names(const std::vector<Run>& runs) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Run& run : runs) {
    for (const std::string& name : run.option_names) {
      if (seen.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

const OptionValue* option_of(const Run& run, const std::string& name) {
  const auto found = run.options.find(name);
  return found == run.options.end() ? nullptr : &found->second;
}

bool differs(const std::vector<Run>& runs, const std::string& name) {
  const OptionValue* first = option_of(runs[0], name);
  return std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
    const OptionValue* other = option_of(run, name);
    return (first == nullptr) != (other == nullptr) || (first != nullptr && first->value != other->value);
  });
}

bool is_given(const std::vector<Run>& runs, const std::string& name) {
  return std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
    const OptionValue* option = option_of(run, name);
    return option != nullptr && option->origin != "default";
  });
}

std::string option_row(const std::vector<Run>& runs, const std::string& name) {
  std::string row = fmt::format("<tr{}><th scope=\"row\">{}</th>",
                                runs.size() > 1 && differs(runs, name) ? " class=\"differs\"" : "", user_text(name));
  for (size_t i = 0; i < runs.size(); ++i) {
    const OptionValue* option = option_of(runs[i], name);
    row += fmt::format("<td class=\"r{}\">{}</td>", i,
                       option == nullptr ? std::string("<small>not known</small>")
                                         : user_text(option->value) + " <small>" + user_text(option->origin) + "</small>");
  }
  return row + "</tr>";
}

std::string options_table(const std::vector<Run>& runs, const std::vector<std::string>& names) {
  std::string head = "<th scope=\"col\">option</th>";
  for (size_t i = 0; i < runs.size(); ++i) {
    head += fmt::format("<th scope=\"col\" class=\"r{0}\"><span class=\"dot c{1}\"></span>{2}</th>", i, i % 8,
                        user_text(runs[i].name));
  }
  std::string rows;
  for (const std::string& name : names) rows += option_row(runs, name);
  return fmt::format("<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>", head, rows);
}

}  // namespace

std::string options_html(const std::vector<Run>& runs) {
  std::vector<std::string> first, others;
  for (const std::string& name : all_option_names(runs)) {
    (is_given(runs, name) || differs(runs, name) ? first : others).push_back(name);
  }
  if (first.empty() && others.empty()) return {};
  std::string html = fmt::format("<section><h2>Options{}</h2>", runs.size() == 1 ? " that were given" : " that were given or differ");
  html += first.empty() ? "<p class=\"note\">None; all are at their defaults.</p>" : options_table(runs, first);
  if (!others.empty()) {
    html += fmt::format("<details><summary>{} more, at their defaults</summary>{}</details>", others.size(),
                        options_table(runs, others));
  }
  return html + "</section>";
}

}  // namespace lockstep::report
