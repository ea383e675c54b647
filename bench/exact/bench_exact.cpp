// Nanoseconds per element of the exact sums, on each path, beside a plain float sum and memcpy of the same arrays in
// the same run. Verifies first: all paths must give the bits of the plain one. One thread, its processor time (so that
// other programs' turns do not count), the best of nine rounds.
#include "lockstep/base/philox.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/tensor/exact.h"
#include "lockstep/tensor/flat_buffer.h"
#include "lockstep/tensor/grad_accumulator.h"

#include <ATen/ops/from_blob.h>
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace {

using namespace lockstep;
using tensor::ExactPath;

constexpr int kRounds = 9;

/// Pages as in the accumulator (huge ones where the kernel gives them), so that all rows are alike.
template <class T>
struct Array {
  Array(int64_t count, at::ScalarType dtype)
      : owner(tensor::zero_flat_buffer(count, dtype)),
        values(static_cast<T*>(owner.data_ptr()), static_cast<size_t>(count)) {}
  at::Tensor owner;
  std::span<T> values;
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double best_ns_per_element(size_t count, const std::function<void()>& act) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const double start = thread_seconds();
    act();
    best = std::min(best, (thread_seconds() - start) * 1e9 / static_cast<double>(count));
  }
  return best;
}

std::vector<ExactPath> paths() {
  std::vector<ExactPath> found{ExactPath::Plain};
  if (tensor::best_exact_path() != ExactPath::Plain) {
    found.push_back(ExactPath::Avx2);
  }
  if (tensor::best_exact_path() == ExactPath::Avx512) {
    found.push_back(ExactPath::Avx512);
  }
  return found;
}

const char* name_of(ExactPath path) {
  return path == ExactPath::Avx512 ? "AVX-512" : path == ExactPath::Avx2 ? "AVX2" : "plain C++";
}

void line(const char* what, const char* path, double ns, double float_ns) {
  fmt::print("  {:<34} {:<10} {:7.3f} ns/element   {:5.2f} x float add\n", what, path, ns, ns / float_ns);
}

bool bench(int64_t count) {
  const double limit = tensor::exact_limit(1000);
  Array<float> values(count, at::kFloat), sums(count, at::kFloat);
  Array<uint16_t> bf16(count, at::kBFloat16);
  Array<int64_t> acc(count, at::kLong), reference(count, at::kLong);
  const RandomStream stream{.seed = 1};
  for (size_t i = 0; i < values.values.size(); ++i) {
    values.values[i] = (stream.uniform(i) - 0.5F) * 1e-2F;
    bf16.values[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values.values[i]) >> 16);
  }
  exact_add(reference.values, values.values, 48, limit, ExactPath::Plain);
  exact_add_bf16(reference.values, bf16.values, 48, limit, ExactPath::Plain);
  for (const ExactPath path : paths()) {
    std::fill(acc.values.begin(), acc.values.end(), 0);
    exact_add(acc.values, values.values, 48, limit, path);
    exact_add_bf16(acc.values, bf16.values, 48, limit, path);
    if (!std::equal(acc.values.begin(), acc.values.end(), reference.values.begin())) {
      fmt::print("{} differs from plain C++: not timed\n", name_of(path));
      return false;
    }
  }

  const auto size = values.values.size();
  fmt::print("{} elements\n", count);
  const double copy_ns = best_ns_per_element(size, [&] {
    std::memcpy(sums.values.data(), values.values.data(), size * sizeof(float));
  });
  const double float_ns = best_ns_per_element(size, [&] {
    float* to = sums.values.data();
    const float* from = values.values.data();
    for (size_t i = 0; i < size; ++i) {
      to[i] += from[i];
    }
  });
  line("memcpy of floats", "", copy_ns, float_ns);
  line("float add", "", float_ns, float_ns);
  for (const ExactPath path : paths()) {
    line("exact_add", name_of(path),
         best_ns_per_element(size, [&] { exact_add(acc.values, values.values, 48, limit, path); }), float_ns);
    line("exact_add_bf16", name_of(path),
         best_ns_per_element(size, [&] { exact_add_bf16(acc.values, bf16.values, 48, limit, path); }), float_ns);
    line("exact_to_float", name_of(path),
         best_ns_per_element(size, [&] { exact_to_float(sums.values, acc.values, 48, path); }), float_ns);
  }

  const tensor::ParamLayout layout({{.name = "weight", .shape = {count / 576, 576}}});
  const auto rows = count / 576;
  const at::Tensor grad = at::from_blob(values.values.data(), {rows, 576});
  const at::Tensor grad_bf16 = at::from_blob(bf16.values.data(), {rows, 576}, at::TensorOptions().dtype(at::kBFloat16));
  for (const auto reduction : {tensor::Reduction::Float32, tensor::Reduction::Exact}) {
    const char* name = reduction == tensor::Reduction::Exact ? "exact" : "float32";
    tensor::GradAccumulator grads(layout, reduction, 1);
    const auto begin = [&] { grads.begin_update(std::vector<int>{48}, std::vector<int64_t>{1000}); };
    line("GradAccumulator, first float grad", name, best_ns_per_element(size, [&] { begin(); grads.add(0, grad); }),
         float_ns);
    line("GradAccumulator, next float grad", name, best_ns_per_element(size, [&] { grads.add(0, grad); }), float_ns);
    line("GradAccumulator, next bf16 grad", name, best_ns_per_element(size, [&] { grads.add(0, grad_bf16); }),
         float_ns);
    std::vector<int64_t> row_ids(2048);
    for (size_t i = 0; i < row_ids.size(); ++i) {
      row_ids[i] = stream.word(i) % rows;
    }
    const auto num_rows = static_cast<int64_t>(row_ids.size());
    const at::Tensor some_rows = at::from_blob(row_ids.data(), {num_rows}, at::TensorOptions().dtype(at::kLong));
    line("GradAccumulator, 2,048 rows of 576", name,
         best_ns_per_element(row_ids.size() * 576,
                             [&] {
                               for (int64_t done = 0; done < num_rows; done += std::min(rows, num_rows)) {
                                 const int64_t part = std::min(rows, num_rows);
                                 grads.add_rows(0, some_rows.narrow(0, 0, part), grad.narrow(0, 0, part));
                               }
                             }),
         float_ns);
  }

  Array<float> moment1(count, at::kFloat), moment2(count, at::kFloat);
  for (const ExactPath path : paths()) {
    line("adamw_step", name_of(path), best_ns_per_element(size, [&] {
           optim::adamw_step(sums.values, moment1.values, moment2.values, values.values,
                             {.learning_rate = 1e-5, .weight_decay = 0.1, .step = 3}, path);
         }), float_ns);
    double total = 0;
    line("sum_of_squares by pieces", name_of(path), best_ns_per_element(size, [&] {
           for (size_t at = 0; at + 4096 <= size; at += 4096) {
             total += optim::sum_of_squares(values.values.subspan(at, 4096), path);
           }
         }), float_ns);
    if (!(total > 0)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  fmt::print("torch {}, best path {}\n", LOCKSTEP_TORCH_VERSION, name_of(tensor::best_exact_path()));
  return bench(1'000'512) && bench(28'311'552) ? 0 : 1;
}
