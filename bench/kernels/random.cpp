// Random words of dropout: whole streams, and the short rows of attention's probabilities.
#include "bench.h"

#include "lockstep/base/philox.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

namespace lockstep::bench {
namespace {

void require_plain_words(const RandomStream& stream, PhiloxPath path, size_t count) {
  std::vector<uint32_t> words(count), plain(count);
  stream.fill(words.data(), 1, count, path);
  stream.fill(plain.data(), 1, count, PhiloxPath::Plain);
  if (words == plain) return;
  fmt::print(stderr, "RandomStream::fill is wrong: {} words differ from the plain path\n", count);
  std::exit(70);
}

double words_per_second(const RandomStream& stream, PhiloxPath path, std::vector<uint32_t>& words) {
  return static_cast<double>(words.size()) / best_seconds([&] { stream.fill(words.data(), 0, words.size(), path); });
}

}  // namespace

void bench_random() {
  const RandomStream stream{.seed = 42, .purpose = RandomPurpose::Dropout};
  fmt::print("\nrandom words\n");
  for (const size_t count : {1024, 50}) {
    std::vector<uint32_t> words(count);
    const double plain = words_per_second(stream, PhiloxPath::Plain, words);
    for (const PhiloxPath path : {PhiloxPath::Avx512, PhiloxPath::Avx2}) {
      if (path < best_philox_path()) continue;
      require_plain_words(stream, path, count);
      const double rate = words_per_second(stream, path, words);
      fmt::print("fill {:>5}, {:<13}{:>8.0f} Mwords/s {:>8.1f} times the plain path\n", count,
                 path == PhiloxPath::Avx512 ? "AVX-512" : "AVX2", rate * 1e-6, rate / plain);
    }
  }
}

}  // namespace lockstep::bench
