#include "lockstep/data/packing.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

namespace lockstep::data {
namespace {

/// The open bins by their room, each queue in the order of waiting.
class OpenBins {
 public:
  explicit OpenBins(int64_t capacity) : capacity_(capacity) {}

  void place(const Piece& piece, std::vector<Bin>& bins) {
    const auto fitting = by_room_.lower_bound(piece.length);
    size_t bin = bins.size();
    int64_t room = capacity_;
    if (fitting == by_room_.end()) {
      bins.emplace_back();
    } else {
      room = fitting->first;
      bin = fitting->second.front();
      fitting->second.pop_front();
      if (fitting->second.empty()) by_room_.erase(fitting);
    }
    bins[bin].push_back(piece);
    if (room > piece.length) by_room_[room - piece.length].push_back(bin);
  }

 private:
  int64_t capacity_;
  std::map<int64_t, std::deque<size_t>> by_room_;
};

std::vector<Piece> pieces_of(std::span<const int64_t> lengths, int64_t max_length, PackingStrategy strategy) {
  std::vector<Piece> pieces;
  for (size_t row = 0; row < lengths.size(); ++row) {
    for (int64_t begin = 0; begin < lengths[row]; begin += max_length) {
      pieces.push_back({static_cast<int64_t>(row), begin, std::min(max_length, lengths[row] - begin)});
      if (strategy == PackingStrategy::Bfd) break;
    }
  }
  return pieces;
}

std::vector<Bin> best_fit_decreasing(std::vector<Piece> pieces, int64_t max_length) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
  std::vector<Bin> bins;
  OpenBins open(max_length);
  for (const Piece& piece : pieces) open.place(piece, bins);
  return bins;
}

std::vector<Bin> wrap(std::span<const int64_t> lengths, int64_t max_length) {
  std::vector<Bin> bins;
  int64_t room = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    for (int64_t begin = 0; begin < lengths[row];) {
      if (room == 0) {
        bins.emplace_back();
        room = max_length;
      }
      const int64_t length = std::min(room, lengths[row] - begin);
      bins.back().push_back({static_cast<int64_t>(row), begin, length});
      begin += length;
      room -= length;
    }
  }
  return bins;
}

TokenRow joined_row(std::span<const TokenRow> rows, const Bin& bin, bool documents_stay) {
  TokenRow result;
  for (const Piece& piece : bin) {
    const TokenRow& row = rows[static_cast<size_t>(piece.row)];
    result.ids.insert(result.ids.end(), row.ids.begin() + piece.begin, row.ids.begin() + piece.begin + piece.length);
    result.trained.insert(result.trained.end(), row.trained.begin() + piece.begin,
                          row.trained.begin() + piece.begin + piece.length);
    if (documents_stay) result.documents.push_back({piece.length, row.source_row});
  }
  result.source_row = rows[static_cast<size_t>(bin.front().row)].source_row;
  return result;
}

void count_cuts(const std::vector<Bin>& bins, std::span<const int64_t> lengths, PackingReport& report) {
  std::vector<int64_t> kept(lengths.size(), 0), num_pieces(lengths.size(), 0);
  for (const Bin& bin : bins) {
    report.num_documents += static_cast<int64_t>(bin.size());
    for (const Piece& piece : bin) {
      kept[static_cast<size_t>(piece.row)] += piece.length;
      ++num_pieces[static_cast<size_t>(piece.row)];
    }
  }
  for (size_t row = 0; row < lengths.size(); ++row) {
    report.num_tokens += kept[row];
    report.num_tokens_lost += lengths[row] - kept[row];
    report.num_rows_cut += kept[row] < lengths[row] || num_pieces[row] > 1;
  }
}

}  // namespace

PackingStrategy packing_strategy(const std::string& name) {
  if (name == "bfd") return PackingStrategy::Bfd;
  if (name == "bfd_split") return PackingStrategy::BfdSplit;
  if (name == "wrapped") return PackingStrategy::Wrapped;
  throw Error::usage("--packing_strategy {}: must be bfd, bfd_split or wrapped.", name);
}

std::vector<Bin> plan_packing(std::span<const int64_t> lengths, int64_t max_length, PackingStrategy strategy) {
  LS_CHECK(max_length >= 1, "rows of {} tokens", max_length);
  if (strategy == PackingStrategy::Wrapped) return wrap(lengths, max_length);
  return best_fit_decreasing(pieces_of(lengths, max_length, strategy), max_length);
}

std::vector<TokenRow> pack_rows(std::span<const TokenRow> rows, int64_t max_length, PackingStrategy strategy,
                                PackingReport& report) {
  std::vector<int64_t> lengths;
  lengths.reserve(rows.size());
  for (const TokenRow& row : rows) lengths.push_back(static_cast<int64_t>(row.ids.size()));
  const std::vector<Bin> bins = plan_packing(lengths, max_length, strategy);
  count_cuts(bins, lengths, report);
  report.max_length = max_length;
  report.num_packed += static_cast<int64_t>(bins.size());
  std::vector<TokenRow> packed;
  packed.reserve(bins.size());
  for (const Bin& bin : bins) {
    TokenRow row = joined_row(rows, bin, strategy != PackingStrategy::Wrapped);
    if (row.num_targets() > 0) {
      packed.push_back(std::move(row));
    } else {
      ++report.num_without_target;
    }
  }
  return packed;
}

}  // namespace lockstep::data
