#include "lockstep/data/classify.h"

#include "lockstep/base/grouped.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::data {
namespace {

std::string split_line(std::string_view label, std::string_view text) { return fmt::format("  {:<12} {}", label, text); }

std::string share(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1)));
}

std::string counted_rows(int64_t count) { return fmt::format("{} {}", grouped(count), count == 1 ? "row" : "rows"); }

std::string label_distribution(const SplitReport& report, const LabelSet& set) {
  if (set.problem == Problem::Regression) {
    return fmt::format("{:.4g} to {:.4g}, {:.4g} on average", report.lowest, report.highest, report.mean);
  }
  constexpr size_t kMost = 10;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(kMost, report.label_counts.size()); ++i) {
    parts.push_back(fmt::format("{}: {} ({})", set.names()[i], grouped(report.label_counts[i]),
                                share(report.label_counts[i], report.num_rows)));
  }
  if (report.label_counts.size() > kMost) parts.push_back(fmt::format("{} more", report.label_counts.size() - kMost));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void add_split(const ClassifySplit& split, const ClassifyDataset& dataset, std::vector<std::string>& lines) {
  const SplitReport& report = split.report;
  std::string text = fmt::format("{} of {}", counted_rows(report.num_rows), fmt::join(report.files, ", "));
  if (report.num_left_out > 0) text += fmt::format("; {} more are left out", grouped(report.num_left_out));
  lines.push_back(split_line(split.name, text));
  if (report.num_incomplete > 0) {
    lines.push_back(split_line("", fmt::format("{} incomplete in the file, left out", counted_rows(report.num_incomplete))));
  }
  if (report.num_repeated_keys > 0) {
    lines.push_back(split_line("", fmt::format("{} with the same key twice: the last value holds, as in Python. First: {}",
                                         counted_rows(report.num_repeated_keys), report.first_repeated_key)));
  }
  lines.push_back(split_line("", fmt::format("{} tokens, {} to {} per row, {:.1f} on average", grouped(report.num_tokens),
                                       grouped(report.shortest), grouped(report.longest),
                                       static_cast<double>(report.num_tokens) / static_cast<double>(report.num_rows))));
  if (report.num_truncated > 0) {
    lines.push_back(split_line("", fmt::format("{} ({}) cut to {} tokens: {} tokens lost", counted_rows(report.num_truncated),
                                         share(report.num_truncated, report.num_rows),
                                         grouped(dataset.max_length.value_or(0)), grouped(report.num_tokens_cut))));
  }
  if (report.num_empty_texts > 0) {
    lines.push_back(split_line("", fmt::format("{} with an empty text", counted_rows(report.num_empty_texts))));
  }
  if (report.num_unlabelled == report.num_rows) {
    lines.push_back(split_line("", "no labels"));
  } else {
    lines.push_back(split_line("", "labels: " + label_distribution(report, dataset.labels)));
    if (report.num_unlabelled > 0) {
      lines.push_back(split_line("", fmt::format("{} without a label", counted_rows(report.num_unlabelled))));
    }
  }
}

}  // namespace

std::vector<std::string> report_lines(const ClassifyDataset& dataset) {
  std::vector<std::string> lines;
  const LabelSet& set = dataset.labels;
  lines.push_back(split_line("task", fmt::format("{}{}, {} {}", dataset.task.empty() ? "" : dataset.task + ": ", name(set.problem),
                                           set.num_labels, set.problem == Problem::Regression ? "target(s)" : "classes")));
  std::string columns = fmt::format("text {}", dataset.columns.text);
  if (dataset.columns.pair) columns += fmt::format(", second text {}", *dataset.columns.pair);
  if (dataset.columns.label) columns += fmt::format(", label {}", *dataset.columns.label);
  lines.push_back(split_line("columns", columns));
  if (!dataset.columns.chosen.empty()) {
    lines.push_back(split_line("", fmt::format("found: {}", fmt::join(dataset.columns.chosen, ", "))));
  }
  const ClassifySplit* first = nullptr;
  for (const auto* splits : {&dataset.train, &dataset.validation, &dataset.test}) {
    for (const ClassifySplit& split : *splits) {
      add_split(split, dataset, lines);
      if (first == nullptr) first = &split;
    }
  }
  for (const std::string& note : dataset.notes) lines.push_back(split_line("note", note));
  if (first != nullptr) {
    lines.push_back(split_line("first row", fmt::format("label {}", first->report.example_label)));
    lines.push_back("    | " + first->report.example);
  }
  return lines;
}

}  // namespace lockstep::data
