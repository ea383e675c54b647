#include "lockstep/tensor/grad_accumulator.h"

#include "lockstep/base/error.h"
#include "lockstep/base/grain_team.h"
#include "lockstep/base/huge_page.h"
#include "lockstep/base/profile.h"
#include "lockstep/tensor/flat_buffer.h"
#include "lockstep/tensor/token_product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>

namespace lockstep::tensor {
namespace {

/// 65,536 elements: half a mebibyte of sums, about 25 us of adding, so a lock costs nothing beside it.
constexpr int64_t kStripePieces = 16;
constexpr int64_t kStripeElements = kStripePieces * kPieceElements;

/// What a piece of the sums holds.
constexpr uint8_t kUntouched = 0;  ///< of interest to nobody: it got no contribution
constexpr uint8_t kOpen = 1;       ///< this rank's contributions
constexpr uint8_t kSummed = 2;     ///< float32 gradients over all ranks, at its begin

constexpr uint8_t kRangeFlag = 1;
constexpr uint8_t kNonFiniteFlag = 2;

/// float + float. Returns whether a value was NaN or infinite.
bool add_floats(float* acc, const float* values, int64_t count) {
  uint32_t non_finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFU;
    non_finite |= static_cast<uint32_t>(magnitude >= 0x7F800000U);
    acc[i] += values[i];
  }
  return non_finite != 0;
}

/// `count` <= kPieceElements values as float. bfloat16 and float16 widen exactly; float64 is rounded.
const float* as_floats(at::ScalarType dtype, const char* values, int64_t count,
                       std::array<float, kPieceElements>& room) {
  if (dtype == at::kFloat) {
    return reinterpret_cast<const float*>(values);
  }
  const auto widen = [&](const auto* source) {
    for (int64_t i = 0; i < count; ++i) {
      room[static_cast<size_t>(i)] = static_cast<float>(source[i]);
    }
  };
  if (dtype == at::kBFloat16) {
    widen(reinterpret_cast<const at::BFloat16*>(values));
  } else if (dtype == at::kHalf) {
    widen(reinterpret_cast<const at::Half*>(values));
  } else {
    widen(reinterpret_cast<const double*>(values));
  }
  return room.data();
}

/// `first`: nobody has contributed to `acc` in this update, and what it holds is of no interest.
ExactFlags sum_exactly(bool first, std::span<int64_t> acc, at::ScalarType dtype, const char* values, int scale_bits,
                       double limit) {
  const size_t count = acc.size();
  if (dtype == at::kBFloat16) {
    const std::span<const uint16_t> bf16(reinterpret_cast<const uint16_t*>(values), count);
    return first ? exact_set_bf16(acc, bf16, scale_bits, limit) : exact_add_bf16(acc, bf16, scale_bits, limit);
  }
  if (dtype == at::kDouble) {
    if (first) std::fill(acc.begin(), acc.end(), 0);
    return exact_add_double(acc, {reinterpret_cast<const double*>(values), count}, scale_bits, limit);
  }
  std::array<float, kPieceElements> room;
  const std::span<const float> floats(as_floats(dtype, values, static_cast<int64_t>(count), room), count);
  return first ? exact_set(acc, floats, scale_bits, limit) : exact_add(acc, floats, scale_bits, limit);
}

bool accepted(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
}

}  // namespace

struct GradAccumulator::State {
  /// A segment as a rank sees it.
  struct Sums {
    char* data;
    const uint8_t* open;  ///< per piece
  };
  struct Segment {
    std::vector<std::mutex> stripes;  ///< each guards its pieces' sums and `open` entries
    std::span<uint8_t> open;          ///< per piece: kUntouched, kOpen or kSummed in this update
    std::vector<Sums> of_ranks;       ///< shared sums only
    bool huge_pages = false;
  };
  std::vector<Segment> segments;
  std::vector<at::Tensor> of_ranks;          ///< what Sums point into
  std::vector<uint8_t> own_open;             ///< of all segments, where sums are not shared
  std::vector<std::atomic<uint8_t>> taken;   ///< per huge page of the shared sums: tried
  std::vector<std::atomic<uint8_t>> flags;   ///< per parameter
};

namespace {

at::ScalarType dtype_of_sums(Reduction reduction) { return reduction == Reduction::Exact ? at::kLong : at::kFloat; }

int64_t sums_bytes(const ParamLayout& layout, Reduction reduction, int num_shards, int segment) {
  return layout.padded_elements(segment, num_shards) * static_cast<int64_t>(c10::elementSize(dtype_of_sums(reduction)));
}

int64_t pieces_of(const ParamLayout& layout, int num_shards, int segment) {
  return layout.padded_elements(segment, num_shards) / kPieceElements;
}

int64_t pieces_of_all(const ParamLayout& layout, int num_shards) {
  int64_t pieces = 0;
  for (int index = 0; index < layout.num_segments(); ++index) pieces += pieces_of(layout, num_shards, index);
  return pieces;
}

int64_t sums_bytes_of_all(const ParamLayout& layout, Reduction reduction, int num_shards) {
  return pieces_of_all(layout, num_shards) * kPieceElements *
         static_cast<int64_t>(c10::elementSize(dtype_of_sums(reduction)));
}

/// sums[i] += more[i], of another process; from memory, with what comes asked for early (see exact_avx512.cpp).
template <class T>
void add_from_memory(T* __restrict sums, const T* __restrict more) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < kPieceElements; i += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(more + i) + 2048);
    for (int64_t j = 0; j < kLine; ++j) sums[i + j] += more[i + j];
  }
}

}  // namespace

int64_t GradAccumulator::num_bytes(const ParamLayout& layout, Reduction reduction, int num_shards) {
  return sums_bytes_of_all(layout, reduction, num_shards) + pieces_of_all(layout, num_shards);
}

GradAccumulator::GradAccumulator(const ParamLayout& layout, Reduction reduction, int num_shards)
    : GradAccumulator(layout, reduction, num_shards, {}, 0) {}

GradAccumulator::GradAccumulator(const ParamLayout& layout, Reduction reduction, int num_shards,
                                 const std::vector<at::Tensor>& of_ranks, int rank)
    : layout_(&layout), reduction_(reduction), is_shared_(!of_ranks.empty()), state_(std::make_unique<State>()) {
  const int64_t all_sums = sums_bytes_of_all(layout, reduction, num_shards);
  for (const at::Tensor& bytes : of_ranks) {
    LS_CHECK(bytes.numel() == num_bytes(layout, reduction, num_shards), "{} bytes for sums", bytes.numel());
  }
  uint8_t* open = nullptr;
  if (is_shared_) {
    open = of_ranks[static_cast<size_t>(rank)].data_ptr<uint8_t>() + all_sums;
    state_->taken = std::vector<std::atomic<uint8_t>>(static_cast<size_t>(all_sums) / kHugePageBytes);
  } else {
    state_->own_open.assign(static_cast<size_t>(pieces_of_all(layout, num_shards)), kUntouched);
    open = state_->own_open.data();
  }
  state_->of_ranks = of_ranks;
  state_->segments.resize(static_cast<size_t>(layout.num_segments()));
  int64_t begin = 0, first_piece = 0;
  for (int index = 0; index < layout.num_segments(); ++index) {
    const int64_t elements = layout.padded_elements(index, num_shards);
    const int64_t bytes = sums_bytes(layout, reduction, num_shards, index);
    const bool by_rows = layout.segment(index).by_rows;
    State::Segment& state = state_->segments[static_cast<size_t>(index)];
    for (const at::Tensor& theirs : of_ranks) {
      auto* const memory = theirs.data_ptr<uint8_t>();
      state.of_ranks.push_back({reinterpret_cast<char*>(memory) + begin, memory + all_sums + first_piece});
    }
    segments_.push_back(is_shared_ ? of_ranks[static_cast<size_t>(rank)].narrow(0, begin, bytes).view(dtype_of_sums(reduction))
                                   : zero_flat_buffer(elements, dtype_of_sums(reduction), by_rows ? Pages::Small : Pages::Huge));
    state.huge_pages = is_shared_ && !by_rows;
    state.stripes = std::vector<std::mutex>(static_cast<size_t>((elements + kStripeElements - 1) / kStripeElements));
    state.open = {open + first_piece, static_cast<size_t>(pieces_of(layout, num_shards, index))};
    begin += bytes;
    first_piece += std::ssize(state.open);
  }
  const auto num_params = static_cast<size_t>(layout.num_params());
  state_->flags = std::vector<std::atomic<uint8_t>>(num_params);
  scale_bits_.assign(num_params, kDefaultScaleBits);
  limits_.assign(num_params, exact_limit(1));
}

GradAccumulator::~GradAccumulator() = default;

void GradAccumulator::begin_update(std::span<const int> scale_bits, std::span<const int64_t> num_contributions) {
  const auto num_params = static_cast<size_t>(layout_->num_params());
  LS_CHECK(scale_bits.size() == num_params && num_contributions.size() == num_params,
           "{} scales and {} counts for {} parameters", scale_bits.size(), num_contributions.size(), num_params);
  scale_bits_.assign(scale_bits.begin(), scale_bits.end());
  std::transform(num_contributions.begin(), num_contributions.end(), limits_.begin(), exact_limit);
  for (auto& flags : state_->flags) {
    flags.store(0);
  }
  for (State::Segment& segment : state_->segments) {
    std::fill(segment.open.begin(), segment.open.end(), kUntouched);
  }
}

char* GradAccumulator::piece_bytes(int segment, int64_t piece) const {
  const at::Tensor& sums = segments_[static_cast<size_t>(segment)];
  return static_cast<char*>(sums.data_ptr()) + static_cast<size_t>(piece * kPieceElements) * sums.element_size();
}

void GradAccumulator::take_huge_page_of(int segment, int64_t piece) {
  if (!state_->segments[static_cast<size_t>(segment)].huge_pages) return;
  const auto begin = reinterpret_cast<uintptr_t>(segments_[0].data_ptr());
  const size_t page = (reinterpret_cast<uintptr_t>(piece_bytes(segment, piece)) - begin) / kHugePageBytes;
  if (page >= state_->taken.size() || state_->taken[page].load(std::memory_order_relaxed) != 0) return;
  // A wish: where memory is in pieces the page stays small.
  if (state_->taken[page].exchange(1) == 0) take_huge_page(reinterpret_cast<std::byte*>(begin) + page * kHugePageBytes);
}

bool GradAccumulator::open_piece(int segment, int64_t piece, bool to_be_filled) {
  uint8_t& open = state_->segments[static_cast<size_t>(segment)].open[static_cast<size_t>(piece)];
  const bool first = open == kUntouched;
  if (first) take_huge_page_of(segment, piece);
  open = kOpen;
  if (first && !to_be_filled) {
    const size_t bytes = kPieceElements * segments_[static_cast<size_t>(segment)].element_size();
    std::memset(piece_bytes(segment, piece), 0, bytes);
  }
  return first && to_be_filled;
}

ExactFlags GradAccumulator::add_range(ParamId id, int64_t begin, int64_t end, at::ScalarType dtype,
                                      const char* values) {
  const int segment = layout_->slot(id).segment;
  void* sums = segments_[static_cast<size_t>(segment)].data_ptr();
  ExactFlags flags;
  while (begin < end) {
    const int64_t piece = begin / kPieceElements;
    const int64_t count = std::min(end, (piece + 1) * kPieceElements) - begin;
    const bool fills = count == kPieceElements && reduction_ == Reduction::Exact;
    const bool first = open_piece(segment, piece, fills);
    if (reduction_ == Reduction::Exact) {
      const std::span<int64_t> acc(static_cast<int64_t*>(sums) + begin, static_cast<size_t>(count));
      const auto param = static_cast<size_t>(id);
      flags |= sum_exactly(first, acc, dtype, values, scale_bits_[param], limits_[param]);
    } else {
      std::array<float, kPieceElements> room;
      flags.non_finite |= add_floats(static_cast<float*>(sums) + begin, as_floats(dtype, values, count, room), count);
    }
    values += static_cast<size_t>(count) * c10::elementSize(dtype);
    begin += count;
  }
  return flags;
}

ExactFlags GradAccumulator::add_in_stripes(ParamId id, int64_t begin, int64_t end, at::ScalarType dtype,
                                           const char* values) {
  const int segment = layout_->slot(id).segment;
  std::vector<std::mutex>& stripes = state_->segments[static_cast<size_t>(segment)].stripes;
  ExactFlags flags;
  while (begin < end) {
    const int64_t stripe = begin / kStripeElements;
    const int64_t stop = std::min(end, (stripe + 1) * kStripeElements);
    const std::lock_guard lock(stripes[static_cast<size_t>(stripe)]);
    flags |= add_range(id, begin, stop, dtype, values);
    values += static_cast<size_t>(stop - begin) * c10::elementSize(dtype);
    begin = stop;
  }
  return flags;
}

void GradAccumulator::note(ParamId id, ExactFlags flags) {
  const int bits = (flags.range ? kRangeFlag : 0) | (flags.non_finite ? kNonFiniteFlag : 0);
  if (bits != 0) {
    state_->flags[static_cast<size_t>(id)].fetch_or(static_cast<uint8_t>(bits));
  }
}

void GradAccumulator::add(ParamId id, const at::Tensor& grad) {
  const profile::Scope span(profile::Kind::GradientAdd, [&] { return grad.numel() * (2 * 8 + grad.element_size()); });
  const ParamSlot& slot = layout_->slot(id);
  LS_CHECK(grad.is_contiguous() && grad.sizes() == at::IntArrayRef(layout_->spec(id).shape) &&
               accepted(grad.scalar_type()),
           "gradient of {} has shape {}, dtype {}", layout_->spec(id).name, fmt::join(grad.sizes(), "x"),
           c10::toString(grad.scalar_type()));
  const auto* values = static_cast<const char*>(grad.data_ptr());
  std::vector<std::mutex>& stripes = state_->segments[static_cast<size_t>(slot.segment)].stripes;
  ExactFlags flags;
  const auto add_stripe = [&](int64_t stripe) {
    const int64_t begin = std::max(slot.offset, stripe * kStripeElements);
    const int64_t end = std::min(slot.offset + slot.numel, (stripe + 1) * kStripeElements);
    const auto skipped = static_cast<size_t>(begin - slot.offset) * grad.element_size();
    flags |= add_range(id, begin, end, grad.scalar_type(), values + skipped);
  };

  std::vector<int64_t> taken;
  const int64_t last = (slot.offset + slot.numel - 1) / kStripeElements;
  for (int64_t stripe = slot.offset / kStripeElements; stripe <= last; ++stripe) {
    const std::unique_lock lock(stripes[static_cast<size_t>(stripe)], std::try_to_lock);
    if (lock.owns_lock()) {
      add_stripe(stripe);
    } else {
      taken.push_back(stripe);
    }
  }
  for (const int64_t stripe : taken) {
    const std::lock_guard lock(stripes[static_cast<size_t>(stripe)]);
    add_stripe(stripe);
  }
  note(id, flags);
}

void GradAccumulator::add_rows(ParamId id, const at::Tensor& rows, const at::Tensor& grad) {
  const ParamSpec& spec = layout_->spec(id);
  const ParamSlot& slot = layout_->slot(id);
  LS_CHECK(spec.shape.size() == 2 && grad.dim() == 2 && grad.size(1) == spec.shape[1] && rows.dim() == 1 &&
               rows.size(0) == grad.size(0) && rows.scalar_type() == at::kLong && rows.is_contiguous() &&
               grad.is_contiguous() && accepted(grad.scalar_type()),
           "row gradients of {} have shape {}, dtype {}; rows have shape {}", spec.name, fmt::join(grad.sizes(), "x"),
           c10::toString(grad.scalar_type()), fmt::join(rows.sizes(), "x"));
  const int64_t width = spec.shape[1];
  const auto* values = static_cast<const char*>(grad.data_ptr());
  const std::span<const int64_t> row_ids(static_cast<const int64_t*>(rows.data_ptr()),
                                         static_cast<size_t>(rows.size(0)));
  ExactFlags flags;
  for (size_t r = 0; r < row_ids.size(); ++r) {
    const int64_t row = row_ids[r];
    LS_CHECK(row >= 0 && row < spec.shape[0], "row {} of {}, which has {}", row, spec.name, spec.shape[0]);
    const int64_t begin = slot.offset + row * width;
    flags |= add_in_stripes(id, begin, begin + width, grad.scalar_type(), values);
    values += static_cast<size_t>(width) * grad.element_size();
  }
  note(id, flags);
}

bool GradAccumulator::add_product(ParamId id, const at::Tensor& dy_TO, const at::Tensor& x_TI) {
  if (dy_TO.scalar_type() != at::kBFloat16 || x_TI.scalar_type() != at::kBFloat16) return false;
  const ParamSpec& spec = layout_->spec(id);
  LS_CHECK(dy_TO.dim() == 2 && x_TI.dim() == 2 && dy_TO.size(0) == x_TI.size(0) && dy_TO.is_contiguous() &&
               x_TI.is_contiguous() && spec.shape == std::vector<int64_t>({dy_TO.size(1), x_TI.size(1)}),
           "product of {} and {} for {}", fmt::join(dy_TO.sizes(), "x"), fmt::join(x_TI.sizes(), "x"), spec.name);
  const int64_t offset = layout_->slot(id).offset;
  const int64_t outputs = dy_TO.size(1), inputs = x_TI.size(1);
  // Of whole bands; parts of a team take rows of dw apart.
  constexpr int64_t kPartRows = 128;
  split_grain_work(outputs, kPartRows, [&](int64_t begin, int64_t end, int) {
    ExactFlags flags;
    token_product({.dy_TO = static_cast<const uint16_t*>(dy_TO.const_data_ptr()) + begin,
                   .x_TI = static_cast<const uint16_t*>(x_TI.const_data_ptr()),
                   .tokens = x_TI.size(0),
                   .outputs = end - begin,
                   .inputs = inputs,
                   .dy_stride = outputs},
                  [&](int64_t first, std::span<const float> band) {
                    const int64_t at = offset + begin * inputs + first;
                    flags |= add_in_stripes(id, at, at + std::ssize(band), at::kFloat, reinterpret_cast<const char*>(band.data()));
                  });
    note(id, flags);
  });
  return true;
}

void GradAccumulator::open_pieces(int segment, int64_t begin, int64_t end) {
  for (int64_t piece = begin; piece < end; ++piece) open_piece(segment, piece, false);
}

at::Tensor& GradAccumulator::segment(int index) {
  open_pieces(index, 0, std::ssize(state_->segments[static_cast<size_t>(index)].open));
  return segments_[static_cast<size_t>(index)];
}

ExactFlags GradAccumulator::flags(ParamId id) const {
  const uint8_t bits = state_->flags[static_cast<size_t>(id)].load();
  return {.range = (bits & kRangeFlag) != 0, .non_finite = (bits & kNonFiniteFlag) != 0};
}

void GradAccumulator::clear_rest(ThreadTeam& team) {
  for (int index = 0; index < std::ssize(segments_); ++index) {
    const State::Segment& state = state_->segments[static_cast<size_t>(index)];
    team.run(state.stripes.size(), [&](size_t stripe, int) {
      const auto begin = static_cast<int64_t>(stripe) * kStripePieces;
      open_pieces(index, begin, std::min(begin + kStripePieces, std::ssize(state.open)));
    });
  }
}

std::span<const float> GradAccumulator::gradient(int segment, int64_t piece, std::span<float> room) const {
  LS_CHECK(std::ssize(room) <= kPieceElements, "{} elements of a piece", room.size());
  const uint8_t open = state_->segments[static_cast<size_t>(segment)].open[static_cast<size_t>(piece)];
  if (open == kUntouched) {
    std::fill(room.begin(), room.end(), 0.0F);
    return room;
  }
  const char* sums = piece_bytes(segment, piece);
  if (open == kSummed || reduction_ == Reduction::Float32) return {reinterpret_cast<const float*>(sums), room.size()};
  const ParamId id = layout_->param_of_piece(segment, piece);
  const int bits = id < 0 ? 0 : scale_bits(id);  // padding holds zeros, which any scale keeps
  exact_to_float(room, {reinterpret_cast<const int64_t*>(sums), room.size()}, bits);
  return room;
}

template <class T>
bool GradAccumulator::add_up_ranks(int segment, int64_t piece, std::span<T> sums) const {
  bool any = false;
  for (const State::Sums& theirs : state_->segments[static_cast<size_t>(segment)].of_ranks) {
    if (theirs.open[piece] == kUntouched) continue;
    const auto* values = reinterpret_cast<const T*>(theirs.data) + piece * kPieceElements;
    if (!any) std::fill(sums.begin(), sums.end(), T{0});
    add_from_memory(sums.data(), values);
    any = true;
  }
  return any;
}

std::span<const float> GradAccumulator::sum_over_ranks(int segment, int64_t piece, std::span<float> room) {
  LS_CHECK(is_shared_, "the sums of other processes are not to be seen");
  uint8_t& open = state_->segments[static_cast<size_t>(segment)].open[static_cast<size_t>(piece)];
  LS_CHECK(open != kSummed, "piece {} of segment {} has been summed", piece, segment);
  std::array<int64_t, kPieceElements> exact;
  std::array<float, kPieceElements> plain;
  const bool is_exact = reduction_ == Reduction::Exact;
  const bool any = is_exact ? add_up_ranks<int64_t>(segment, piece, exact) : add_up_ranks<float>(segment, piece, plain);
  if (!any) return gradient(segment, piece, room);
  if (open == kUntouched) take_huge_page_of(segment, piece);
  // In place of this rank's own sums, which were read just now.
  const std::span<float> result(reinterpret_cast<float*>(piece_bytes(segment, piece)), static_cast<size_t>(kPieceElements));
  if (is_exact) {
    const ParamId id = layout_->param_of_piece(segment, piece);
    exact_to_float(result, exact, id < 0 ? 0 : scale_bits(id));
  } else {
    std::copy(plain.begin(), plain.end(), result.begin());
  }
  open = kSummed;
  return result.first(room.size());
}

}  // namespace lockstep::tensor
