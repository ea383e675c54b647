#pragma once

#include "lockstep/data/examples.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Samples joined into rows of at most max_length tokens, as trl 1.16 joins them, but over the whole data set (trl packs
/// groups of 1,000 rows; up to that many the results are equal). A pure function of the lengths.
namespace lockstep::data {

/// Bfd: rows longer than max_length lose their end. BfdSplit: they are cut into pieces of max_length, the remainder
/// last, each a document of its own. Both place what they have longest first (ties: in order) into the bin with the
/// least room that suffices (ties: the one that has waited longest), else into a new one. Wrapped: all rows are one
/// stream, cut every max_length tokens, and attention crosses what is joined.
enum class PackingStrategy { Bfd, BfdSplit, Wrapped };
/// "bfd", "bfd_split", "wrapped"; Error{Usage} otherwise.
PackingStrategy packing_strategy(const std::string& name);

/// Tokens [begin, begin + length) of a row.
struct Piece {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t length = 0;
  bool operator==(const Piece&) const = default;
};
using Bin = std::vector<Piece>;

/// Bins in the order they were opened. Rows of length 0 are left out. max_length >= 1.
std::vector<Bin> plan_packing(std::span<const int64_t> lengths, int64_t max_length, PackingStrategy strategy);

/// The packed rows; `report` is added to. Bins in which nothing is trained are left out, as there is nothing to compute in them.
std::vector<TokenRow> pack_rows(std::span<const TokenRow> rows, int64_t max_length, PackingStrategy strategy,
                                PackingReport& report);

}  // namespace lockstep::data
