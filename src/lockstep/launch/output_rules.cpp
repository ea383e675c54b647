#include "lockstep/launch/output_rules.h"

#include <algorithm>
#include <charconv>
#include <cctype>
#include <map>

namespace lockstep::launch {

namespace {

constexpr std::string_view kNullDevice = "/dev/null";

std::optional<Streams> parse_set(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  return static_cast<Streams>(text[0] - '0');
}

struct RankEntry {
  std::string_view text;
  size_t rank = 0;
  Streams set = Streams::None;
};

/// "0:3,12:1"; absent when it is none.
std::optional<std::vector<RankEntry>> parse_entries(std::string_view text) {
  std::vector<RankEntry> entries;
  while (true) {
    const std::string_view entry = text.substr(0, text.find(','));
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    size_t rank = 0;
    const auto [end, problem] = std::from_chars(entry.data(), entry.data() + colon, rank);
    const auto set = parse_set(entry.substr(colon + 1));
    if (problem != std::errc() || end != entry.data() + colon || !set) return std::nullopt;
    entries.push_back({entry, rank, *set});
    if (entry.size() == text.size()) return entries;
    text.remove_prefix(entry.size() + 1);
  }
}

bool has(Streams set, Stream stream) {
  return (static_cast<unsigned>(set) & (stream == Stream::Out ? 1U : 2U)) != 0;
}

bool has(const std::vector<Streams>& by_rank, int local_rank, Stream stream) {
  const auto index = static_cast<size_t>(local_rank);
  return index < by_rank.size() && has(by_rank[index], stream);
}

bool is_name_letter(char letter, bool is_first) {
  const auto value = static_cast<unsigned char>(letter);
  return letter == '_' || std::isalpha(value) != 0 || (!is_first && std::isdigit(value) != 0);
}

/// The length of the name at the start of `text`.
size_t name_length(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && is_name_letter(text[length], length == 0)) ++length;
  return length;
}

std::string substitute(std::string_view text, const std::map<std::string, std::string, std::less<>>& values) {
  std::string result;
  while (!text.empty()) {
    const size_t dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    const bool in_braces = text.starts_with("${");
    const size_t start = in_braces ? 2 : 1;
    const std::string_view name = text.substr(start, name_length(text.substr(start)));
    const size_t end = start + name.size() + (in_braces ? 1 : 0);
    const bool is_macro = !name.empty() && (!in_braces || (end <= text.size() && text[end - 1] == '}'));
    if (is_macro) {
      const auto found = values.find(name);
      result += found == values.end() ? text.substr(0, end) : std::string_view(found->second);
      text.remove_prefix(end);
    } else {
      result += '$';
      text.remove_prefix(text.starts_with("$$") ? 2 : 1);
    }
  }
  return result;
}

}  // namespace

std::optional<std::vector<Streams>> parse_streams(std::string_view text, int num_workers) {
  std::vector<Streams> result(static_cast<size_t>(num_workers), Streams::None);
  if (const auto all = parse_set(text)) {
    std::fill(result.begin(), result.end(), *all);
    return result;
  }
  const auto entries = parse_entries(text);
  if (!entries) return std::nullopt;
  for (const RankEntry& entry : *entries) {
    if (entry.rank < result.size()) result[entry.rank] = entry.set;
  }
  return result;
}

std::vector<std::string> idle_entries(std::string_view text, int num_workers) {
  std::vector<std::string> idle;
  const auto entries = parse_entries(text);
  if (!entries) return idle;
  for (auto entry = entries->begin(); entry != entries->end(); ++entry) {
    const bool comes_again = std::any_of(entry + 1, entries->end(), [&](const RankEntry& later) {
      return later.rank == entry->rank;
    });
    if (comes_again || entry->rank >= static_cast<size_t>(num_workers)) idle.emplace_back(entry->text);
  }
  return idle;
}

std::vector<std::string> parse_filters(std::string_view text) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      words.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      words.back() += ',';
      ++i;
    } else {
      words.emplace_back();
    }
  }
  std::erase(words, "");
  return words;
}

bool is_null_device(const OutputRules& rules) { return rules.log_dir && *rules.log_dir == kNullDevice; }

StreamRoute route(const OutputRules& rules, int local_rank, Stream stream) {
  if (is_null_device(rules)) return {};
  const bool is_teed = has(rules.tee, local_rank, stream);
  const bool to_file = is_teed || has(rules.redirects, local_rank, stream);
  const bool is_shown = rules.console_ranks.empty() || std::find(rules.console_ranks.begin(), rules.console_ranks.end(),
                                                                 local_rank) != rules.console_ranks.end();
  if (to_file) return {.target = StreamTarget::Pipe, .to_file = true, .to_console = is_teed && is_shown};
  return {.target = is_shown ? StreamTarget::Inherit : StreamTarget::Null};
}

std::string line_prefix(const std::string& prefix_template, const std::string& role, int rank, int local_rank,
                        const std::string& host) {
  if (prefix_template.empty()) return "[" + role + std::to_string(local_rank) + "]:";
  return substitute(prefix_template, {{"role_name", role}, {"rank", std::to_string(rank)},
                                      {"local_rank", std::to_string(local_rank)}, {"hostname", host}});
}

}  // namespace lockstep::launch
