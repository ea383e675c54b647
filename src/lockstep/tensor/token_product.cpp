#include "lockstep/tensor/token_product.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/flat_buffer.h"
#include "lockstep/tensor/token_product_paths.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>

namespace lockstep::tensor {
namespace {

/// For inputs that are a multiple of 64 a band is a whole number of pieces, which a first contribution fills.
constexpr int64_t kNarrowBand = 64;
/// When the columns do not fit the second cache (2 MiB) beside the rest, every band reads them from the third.
constexpr int64_t kWideBand = 128;
constexpr int64_t kCachedColumnBytes = int64_t{1} << 20;

int64_t blocks_of(int64_t count) { return (count + detail::kProductBlock - 1) / detail::kProductBlock; }

const detail::ProductKernel& kernel_of(TokenProductPath path) {
  switch (path) {
    case TokenProductPath::Amx: return detail::kProductAmx;
    case TokenProductPath::Avx512Bf16: return detail::kProductAvx512Bf16;
    case TokenProductPath::Avx2: return detail::kProductAvx2;
    case TokenProductPath::Plain: break;
  }
  return detail::kProductPlain;
}

/// Room of one thread, kept for its next product.
struct Workspace {
  /// Golden-ratio steps: however many threads there are, they begin far from each other.
  Workspace() {
    static std::atomic<int> num_threads = 0;
    const double place = 0.6180339887 * num_threads++;
    start = place - std::floor(place);
  }

  char* bytes(at::Tensor& room, int64_t count) {
    if (!room.defined() || room.numel() < count) room = zero_flat_buffer(count, at::kByte);
    return static_cast<char*>(room.data_ptr());
  }

  at::Tensor rows, columns, values;
  double start = 0;  ///< the share of the bands that this thread leaves for the end
};

/// From rows `stride` apart to rows `width` apart.
void close_gaps(float* values, int64_t num_rows, int64_t stride, int64_t width) {
  for (int64_t row = 1; row < num_rows && width < stride; ++row) {
    std::copy_n(values + row * stride, width, values + row * width);
  }
}

}  // namespace

bool runs(TokenProductPath path) {
  switch (path) {
    case TokenProductPath::Amx: {
      static const bool here = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
                               __builtin_cpu_supports("avx512bw") && detail::amx_granted();
      return here;
    }
    case TokenProductPath::Avx512Bf16:
      return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case TokenProductPath::Avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case TokenProductPath::Plain: break;
  }
  return true;
}

TokenProductPath best_token_product_path() {
  static const TokenProductPath best = [] {
    for (const auto path : {TokenProductPath::Amx, TokenProductPath::Avx512Bf16, TokenProductPath::Avx2}) {
      if (runs(path)) return path;
    }
    return TokenProductPath::Plain;
  }();
  return best;
}

void token_product(const TokenProduct& product, const TakeBand& take, TokenProductPath path) {
  LS_CHECK(runs(path), "path {} does not run here", static_cast<int>(path));
  const auto& [dy, x, tokens, outputs, inputs, given_stride] = product;
  const int64_t dy_stride = given_stride == 0 ? outputs : given_stride;
  thread_local Workspace workspace;
  const detail::ProductKernel& kernel = kernel_of(path);
  const int64_t groups = blocks_of(tokens), column_blocks = blocks_of(inputs);
  const int64_t stride = column_blocks * detail::kProductBlock;
  const int64_t column_bytes = column_blocks * groups * kernel.block_bytes;
  const int64_t band_rows = column_bytes > kCachedColumnBytes ? kWideBand : kNarrowBand;
  char* columns = workspace.bytes(workspace.columns, column_bytes);
  char* rows = workspace.bytes(workspace.rows, blocks_of(band_rows) * groups * kernel.block_bytes);
  char* band = workspace.bytes(workspace.values, band_rows * stride * int64_t{sizeof(float)});
  auto* values = reinterpret_cast<float*>(band);

  kernel.pack_columns({.values = x, .tokens = tokens, .width = inputs, .stride = inputs}, columns);
  const int64_t num_bands = (outputs + band_rows - 1) / band_rows;
  const auto first_band = static_cast<int64_t>(workspace.start * static_cast<double>(num_bands));
  for (int64_t i = 0; i < num_bands; ++i) {
    const int64_t row = (first_band + i) % num_bands * band_rows;
    const int64_t num_rows = std::min(band_rows, outputs - row);
    kernel.pack_rows({.values = dy + row, .tokens = tokens, .width = num_rows, .stride = dy_stride}, rows);
    kernel.multiply({.rows = rows,
                     .columns = columns,
                     .num_groups = groups,
                     .num_row_blocks = blocks_of(num_rows),
                     .num_column_blocks = column_blocks,
                     .out = values});
    close_gaps(values, num_rows, stride, inputs);
    take(row * inputs, {values, static_cast<size_t>(num_rows * inputs)});
  }
}

}  // namespace lockstep::tensor
