#include "lockstep/report/page.h"

#include "lockstep/base/grouped.h"
#include "lockstep/report/chart.h"
#include "lockstep/report/html.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::report {
namespace {

constexpr size_t kMostEvaluationCharts = 24;

/// A key of metrics.jsonl as a chart.
struct TrainingChart {
  const char* key;
  const char* title;
  const char* unit;
  double scale = 1;
};
constexpr TrainingChart kTrainingCharts[] = {
    {"loss", "Training loss", "per target"},
    {"learning_rate", "Learning rate", ""},
    {"grad_norm", "Gradient norm", "before clipping"},
    {"mean_token_accuracy", "Accuracy", "share of targets"},
    {"entropy", "Entropy", "nats per target"},
    {"tokens_per_second", "Throughput", "tokens per second"},
    {"step_ms", "Time per update", "seconds", 1e-3},
    {"resident_bytes", "Memory of rank 0", "GB", 1e-9},
};

double last_of(const Run& run, const char* key) {
  const auto found = run.training.find(key);
  return found == run.training.end() || found->second.empty() ? std::nan("") : found->second.back().value;
}

double median_of(const Run& run, const char* key) {
  const auto found = run.training.find(key);
  if (found == run.training.end() || found->second.empty()) return std::nan("");
  std::vector<double> values;
  for (const Point& point : found->second) values.push_back(point.value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double fact(const std::map<std::string, double>& facts, const char* key) {
  const auto found = facts.find(key);
  return found == facts.end() ? std::nan("") : found->second;
}

std::string duration_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

/// One line of a card; nothing if the value is not known.
class Card {
 public:
  void add(const std::string& name, const std::string& value_html) {
    html_ += fmt::format("<dt>{}</dt><dd>{}</dd>", name, value_html);
  }
  void number(const char* name, double value, const char* unit = "") {
    if (std::isfinite(value)) add(name, number_text(value) + unit);
  }
  const std::string& html() const { return html_; }

 private:
  std::string html_;
};

std::string updates_text(const Run& run) {
  const double total = fact(run.facts, "total_updates");
  if (!std::isfinite(total) || total < 1 || total > 1e15) return number_text(static_cast<double>(run.num_updates));
  return fmt::format("{} of {}{}", number_text(static_cast<double>(run.last_update)), number_text(total),
                     static_cast<double>(run.last_update) < total ? " <b class=\"warn\">not finished</b>" : "");
}

/// Lowest and last of a curve; the best of what is no loss nobody can tell without its name's meaning.
void add_evaluations(const Run& run, Card& card) {
  size_t shown = 0;
  for (const auto& [key, points] : run.evaluations) {
    if (points.empty() || shown++ >= kMostEvaluationCharts) continue;
    card.add(user_text(key), fmt::format("{} <small>at update {}</small>", number_text(points.back().value),
                                         number_text(points.back().step)));
  }
  if (run.best_metric && run.best_step) {
    card.add("best model", fmt::format("{} <small>at update {}</small>", number_text(*run.best_metric),
                                       number_text(static_cast<double>(*run.best_step))));
  }
}

std::string card_html(const Run& run, size_t index) {
  Card card;
  card.add("updates", updates_text(run));
  card.number("last loss", last_of(run, "loss"));
  card.number("mean loss", fact(run.results, "train_loss"));
  add_evaluations(run, card);
  card.number("samples per update", fact(run.facts, "global_batch_size"));
  card.number("processes", fact(run.facts, "processes"));
  card.number("tokens per second", median_of(run, "tokens_per_second"), " <small>median</small>");
  const double seconds = fact(run.results, "train_runtime");
  if (std::isfinite(seconds)) card.add("training took", duration_text(seconds));
  const double peak = last_of(run, "peak_resident_bytes");
  if (std::isfinite(peak)) card.add("most memory", fmt::format("{:.3g} GB <small>rank 0</small>", peak * 1e-9));
  std::string problems;
  for (const std::string& problem : run.problems) problems += "<li>" + escape_html(problem) + "</li>";
  if (!problems.empty()) problems = "<ul class=\"problems\">" + problems + "</ul>";
  return fmt::format("<article class=\"r{0}\"><h2><span class=\"dot c{1}\"></span>{2}</h2><dl>{3}</dl>{4}</article>", index,
                     index % 8, user_text(run.name), card.html(), problems);
}

std::string figure_html(const std::string& title_html, const char* unit, const std::string& svg) {
  const std::string small = *unit == '\0' ? "" : fmt::format(" <small>{}</small>", unit);
  return fmt::format("<figure><figcaption>{}{}</figcaption>{}</figure>", title_html, small, svg);
}

std::vector<Curve> training_curves(const std::vector<Run>& runs, const TrainingChart& chart) {
  std::vector<Curve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto found = runs[i].training.find(chart.key);
    if (found == runs[i].training.end()) continue;
    curves.push_back({i, found->second});
    for (Point& point : curves.back().points) point.value *= chart.scale;
  }
  return curves;
}

std::set<std::string> evaluation_keys(const std::vector<Run>& runs) {
  std::set<std::string> keys;
  for (const Run& run : runs) {
    for (const auto& [key, points] : run.evaluations) keys.insert(key);
  }
  return keys;
}

}  // namespace

std::string legend_html(const std::vector<Run>& runs) {
  if (runs.size() < 2) return {};
  std::string html = "<nav aria-label=\"runs\">";
  for (size_t i = 0; i < runs.size(); ++i) {
    html += fmt::format("<label><input type=\"checkbox\" id=\"show{0}\" checked><span class=\"dot c{1}\"></span>{2}</label>", i,
                        i % 8, user_text(runs[i].name));
  }
  return html + "</nav>";
}

std::string cards_html(const std::vector<Run>& runs) {
  std::string html = "<section class=\"cards\">";
  for (size_t i = 0; i < runs.size(); ++i) html += card_html(runs[i], i);
  return html + "</section>";
}

std::string charts_html(const std::vector<Run>& runs) {
  std::string figures;
  std::vector<std::string> evaluations;
  const std::set<std::string> keys = evaluation_keys(runs);
  for (const std::string& key : keys) {
    if (evaluations.size() >= kMostEvaluationCharts) break;
    std::vector<Curve> curves;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto found = runs[i].evaluations.find(key);
      if (found != runs[i].evaluations.end()) curves.push_back({i, found->second});
    }
    const std::string svg = chart_svg(key, curves);
    if (!svg.empty()) evaluations.push_back(figure_html(user_text(key), "", svg));
  }
  bool is_first = true;
  for (const TrainingChart& chart : kTrainingCharts) {
    const std::string svg = chart_svg(chart.title, training_curves(runs, chart));
    if (!svg.empty()) figures += figure_html(chart.title, chart.unit, svg);
    // What a run is judged by comes right after its loss.
    if (is_first) {
      for (const std::string& figure : evaluations) figures += figure;
    }
    is_first = false;
  }
  if (figures.empty()) return "<p class=\"note\">No update is logged yet.</p>";
  const std::string more = keys.size() <= kMostEvaluationCharts
                               ? ""
                               : fmt::format("<p class=\"note\">{} of {} evaluation metrics are drawn.</p>",
                                             kMostEvaluationCharts, keys.size());
  return "<section class=\"charts\">" + figures + "</section>" + more;
}

std::string start_reports_html(const std::vector<Run>& runs) {
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].start_report.empty()) continue;
    std::string text;
    for (const std::string& line : runs[i].start_report) text += "<div>" + escape_html(line) + "</div>";
    html += fmt::format("<h3 class=\"r{0}\"><span class=\"dot c{1}\"></span>{2}</h3><div class=\"lines r{0}\">{3}</div>", i,
                        i % 8, user_text(runs[i].name), text);
  }
  return html.empty() ? html : "<section><h2>Model, data and plan</h2>" + html + "</section>";
}

std::string page_html(const std::vector<Run>& runs) {
  std::string title = "lockstep";
  for (const Run& run : runs) title += (title == "lockstep" ? ": " : ", ") + run.name;
  std::string hide;
  for (size_t i = 0; i < runs.size(); ++i) {
    hide += fmt::format("body:has(#show{0}:not(:checked)) .r{0}{{display:none}}", i);
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{}"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "base-uri 'none'; form-action 'none'\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>{}</title><style>{}{}</style></head>\n<body>\n"
      "<header><h1>{}</h1></header>\n{}\n<main>\n{}\n{}\n{}\n{}\n</main>\n"
      "<footer>Written by lockstep report. Point at a chart, or tap it, to read its values.</footer>\n</body></html>\n",
      kGenerator, escape_html(title), style_css(), hide,
      runs.size() == 1 ? "Training run" : fmt::format("{} training runs", runs.size()), legend_html(runs), cards_html(runs),
      charts_html(runs), start_reports_html(runs), options_html(runs));
}

}  // namespace lockstep::report
