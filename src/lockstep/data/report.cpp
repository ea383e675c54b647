#include "lockstep/data/examples.h"

#include "lockstep/base/grouped.h"

#include <fmt/ranges.h>

#include <string_view>

namespace lockstep::data {
namespace {

std::string rows(int64_t count) { return grouped(count) + (count == 1 ? " row" : " rows"); }

/// A share that rounds to 100.0 or 0.0 without being all or nothing is shown as such.
std::string percent(int64_t part, int64_t whole) {
  const double share = whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (part < whole && share >= 99.95) return "> 99.9 %";
  if (part > 0 && share < 0.05) return "< 0.1 %";
  return fmt::format("{:.1f} %", share);
}

std::string line(std::string_view label, std::string_view text) { return fmt::format("  {:<12} {}", label, text); }

std::string list_of_names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMost, ", "), names.size() - kMost);
}

std::string_view trained_part(const DatasetReport& report) {
  if (report.completion_only && report.assistant_only) return "the assistant's turns of the completion";
  if (report.completion_only) return "the completion";
  if (report.assistant_only) return "the assistant's turns";
  return "all tokens";
}

std::string stop_text(const DatasetReport& report) {
  if (report.stop_token.empty()) {
    return "trained on in no row: the model will not learn to stop. Add the end of turn to the data or the template.";
  }
  if (report.stop_token_is_target) return fmt::format("{} is trained on in every row", report.stop_token);
  std::string text = fmt::format("{} is not trained on in {} ({})", report.stop_token,
                                 rows(report.num_rows_without_stop),
                                 percent(report.num_rows_without_stop, report.num_kept));
  if (report.num_truncated > 0) text += "; rows that are cut lose it";
  return text;
}

void add_packing(const PackingReport& packing, std::vector<std::string>& lines) {
  const int64_t room = packing.num_packed * packing.max_length;
  lines.push_back(line("packing", fmt::format("{}: {} documents in {} of at most {} tokens ({} full); tokens: {} kept, {} lost",
                                              packing.strategy, grouped(packing.num_documents), rows(packing.num_packed),
                                              grouped(packing.max_length), percent(packing.num_tokens, room),
                                              grouped(packing.num_tokens), grouped(packing.num_tokens_lost))));
  if (packing.num_rows_cut > 0) {
    const bool loses = packing.strategy == "bfd";
    lines.push_back(line("", fmt::format("{} {}", rows(packing.num_rows_cut),
                                         loses ? "cut at the end (bfd_split keeps what is cut)" : "cut into several documents")));
  }
  if (packing.num_without_target > 0) {
    lines.push_back(line("", fmt::format("{} without a trained token left out", rows(packing.num_without_target))));
  }
  if (packing.strategy == "wrapped") {
    lines.push_back(line("WARNING", "wrapped: attention and positions run on from one sample into the next within a row. "
                                    "bfd and bfd_split keep samples apart."));
  }
}

void add_example(const DatasetReport& report, std::vector<std::string>& lines) {
  lines.push_back(fmt::format("  row {} of the data, trained parts in [[ ]]:", grouped(report.example_row + 1)));
  std::string_view rest = report.example;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(fmt::format("    | {}", rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

std::vector<std::string> report_lines(const DatasetReport& report) {
  std::vector<std::string> lines;
  lines.push_back(line("data", list_of_names(report.files)));
  if (!report.cache.empty()) lines.push_back(line("tokens are", report.cache));
  for (const std::string& part : report.mixture) lines.push_back(line("mixture", part));
  lines.push_back(line("rows", fmt::format("{} of kind {}, {} kept ({})", grouped(report.num_rows), report.kind,
                                           grouped(report.num_kept), percent(report.num_kept, report.num_rows))));
  if (report.num_fully_masked > 0) {
    lines.push_back(line("dropped", fmt::format("{} without a trained token{}", rows(report.num_fully_masked),
                                                report.num_truncated > 0 ? " left after the cut" : "")));
  }
  if (report.num_empty > 0) {
    lines.push_back(line("dropped", fmt::format("{} with nothing to predict (fewer than two tokens, or only the first "
                                                "one trained)", rows(report.num_empty))));
  }
  if (report.num_truncated > 0 && !report.packing) {
    lines.push_back(line("cut", fmt::format("{} ({}) at max_length = {}: {} tokens lost", rows(report.num_truncated),
                                            percent(report.num_truncated, report.num_rows),
                                            grouped(report.max_length.value_or(0)), grouped(report.num_tokens_cut))));
  }
  lines.push_back(line("tokens", fmt::format("{} in {}, {} to {} per row, {:.1f} on average",
                                             grouped(report.num_tokens),
                                             report.packing ? "rows before packing" : "kept rows",
                                             grouped(report.shortest),
                                             grouped(report.longest),
                                             static_cast<double>(report.num_tokens) /
                                                 static_cast<double>(report.num_kept))));
  lines.push_back(line("trained", fmt::format("{}: {} targets ({} of the tokens)", trained_part(report),
                                              grouped(report.num_targets),
                                              percent(report.num_targets, report.num_tokens))));
  lines.push_back(line("stop token", stop_text(report)));
  if (report.num_prompt_mismatch > 0) {
    lines.push_back(line("mismatch",
                         fmt::format("in {} the prompt alone tokenizes otherwise than with its completion; training "
                                     "starts where they part. First: {}", rows(report.num_prompt_mismatch),
                                     report.first_mismatch)));
  }
  if (report.num_repeated_keys > 0) {
    lines.push_back(line("same key", fmt::format("twice in {}; the last value holds, as in Python. First: {}",
                                                 rows(report.num_repeated_keys), report.first_repeated_key)));
  }
  if (!report.foreign_role.empty()) {
    lines.push_back(line("roles", fmt::format("such as '{}' are given to the chat template as they are, as trl does; look at the "
                                              "row below, and rename them (human: user, gpt: assistant) if it should know "
                                              "them", report.foreign_role)));
  }
  if (report.packing) add_packing(*report.packing, lines);
  if (!report.ignored_columns.empty()) lines.push_back(line("not used", "columns " + list_of_names(report.ignored_columns)));
  add_example(report, lines);
  return lines;
}

}  // namespace lockstep::data
