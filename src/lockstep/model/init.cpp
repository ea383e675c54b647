#include "lockstep/model/init.h"

#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"

#include <ATen/ops/full.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace lockstep::model {
namespace {

template <size_t N>
double polynomial(const double (&coefficients)[N], double x) {
  double sum = coefficients[N - 1];
  for (size_t k = N - 1; k-- > 0;) sum = sum * x + coefficients[k];
  return sum;
}

/// Natural logarithm of a positive, normal number by the series of (1 + s) / (1 - s) (as in kernels/cpu/elementary.inc).
double log_by_series(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  auto m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1) / (m + 1);
  double series = 0;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * s * s + 1.0 / odd;
  return exponent * 0.6931471805599453 + 2 * s * series;
}

}  // namespace

double normal_quantile(double p) {
  constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                           1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                           3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double kB[] = {1,
                           4.2313330701600911252e+1,
                           6.8718700749205790830e+2,
                           5.3941960214247511077e+3,
                           2.1213794301586595867e+4,
                           3.9307895800092710610e+4,
                           2.8729085735721942674e+4,
                           5.2264952788528545610e+3};
  constexpr double kC[] = {1.42343711074968357734e0, 4.63033784615654529590e0,  5.76949722146069140550e0,
                           3.64784832476320460504e0, 1.27045825245236838258e0,  2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1,
                           2.05319162663775882187e0,
                           1.67638483018380384940e0,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  const double r = std::sqrt(-log_by_series(q < 0 ? p : 1 - p)) - 1.6;
  const double size = polynomial(kC, r) / polynomial(kD, r);
  return q < 0 ? -size : size;
}

void fill_normal(std::span<float> out, double standard_deviation, uint64_t seed, const std::string& name) {
  const RandomStream stream{.seed = seed,
                            .purpose = RandomPurpose::Initialisation,
                            .ordinal = hash_bytes(std::as_bytes(std::span(name.data(), name.size())))};
  std::vector<uint32_t> words(out.size());
  stream.fill(words.data(), 0, words.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(standard_deviation * normal_quantile((static_cast<double>(words[i]) + 0.5) * 0x1p-32));
}

at::Tensor new_parameter(const tensor::ParamSpec& spec, double initializer_range, uint64_t seed) {
  if (!spec.is_matrix()) return at::full(spec.shape, spec.name.ends_with(".bias") ? 0 : 1, at::kFloat);
  at::Tensor out = at::empty(spec.shape, at::kFloat);
  fill_normal({out.mutable_data_ptr<float>(), static_cast<size_t>(out.numel())}, initializer_range, seed, spec.name);
  return out;
}

}  // namespace lockstep::model
