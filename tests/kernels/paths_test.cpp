// AVX-512, AVX2 and plain C++ give the same bits.
#include "lockstep/base/philox.h"
#include "lockstep/kernels/cpu/table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::kernels::cpu {
namespace {

using Bytes = std::vector<char>;

size_t size_of(Dtype dtype) { return dtype == Dtype::Bf16 ? 2 : dtype == Dtype::F32 ? 4 : 8; }
Dtype acc_of(Dtype dtype) { return dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32; }

/// Values between -limit and limit.
Bytes random(Dtype dtype, int64_t count, uint64_t ordinal, double limit = 3) {
  std::vector<uint32_t> words(static_cast<size_t>(count));
  RandomStream{.ordinal = ordinal}.fill(words.data(), 0, words.size());
  std::vector<double> wide(words.size());
  for (size_t i = 0; i < words.size(); ++i) wide[i] = (words[i] * 0x1p-31 - 1) * limit;
  Bytes out(words.size() * size_of(dtype));
  table_of(Path::Plain)->convert(Dtype::F64, wide.data(), dtype, out.data(), count);
  return out;
}
Bytes zeros(Dtype dtype, int64_t count) { return Bytes(static_cast<size_t>(count) * size_of(dtype)); }

struct Computation {
  std::string name;
  std::function<std::vector<Bytes>(const Table&)> results;
};

std::vector<Computation> runs_of(Dtype dtype, int64_t rows, int64_t width) {
  const Dtype acc = acc_of(dtype);
  const int64_t count = rows * width;
  std::vector<Computation> runs;
  runs.push_back({"rms_norm", [=](const Table& table) {
                    Bytes x = random(acc, count, 1), delta = random(dtype, count, 2), w = random(acc, width, 3);
                    Bytes y = zeros(dtype, count), rstd = zeros(acc, rows);
                    table.rms_norm({acc, dtype, dtype, x.data(), delta.data(), w.data(), rstd.data(), y.data(), rows,
                                    width, 1e-5, false});
                    Bytes dy = random(dtype, count, 4), dx = random(acc, count, 5);
                    Bytes dw = zeros(acc, width), scratch = zeros(acc, width);
                    table.rms_norm_backward({dtype, acc, acc, dy.data(), x.data(), rstd.data(), w.data(), dx.data(),
                                             dw.data(), scratch.data(), rows, width});
                    return std::vector<Bytes>{x, y, rstd, dx, dw};
                  }});
  runs.push_back({"swiglu", [=](const Table& table) {
                    const Bytes gate = random(dtype, count, 1, 30), up = random(dtype, count, 2);
                    const Bytes dh = random(dtype, count, 3);
                    Bytes h = zeros(dtype, count), dgate = h, dup = h, again = h;
                    table.swiglu(dtype, gate.data(), up.data(), h.data(), count);
                    table.swiglu_backward(dtype, dh.data(), gate.data(), up.data(), dgate.data(), dup.data(),
                                          again.data(), count);
                    EXPECT_EQ(h, again);
                    return std::vector<Bytes>{h, dgate, dup};
                  }});
  runs.push_back({"geglu and softcap", [=](const Table& table) {
                    const Bytes gate = random(dtype, count, 1, 9), up = random(dtype, count, 2), dh = random(dtype, count, 3);
                    Bytes h = zeros(dtype, count), dgate = h, dup = h, again = h, capped = gate;
                    table.geglu(dtype, gate.data(), up.data(), h.data(), count);
                    table.geglu_backward(dtype, dh.data(), gate.data(), up.data(), dgate.data(), dup.data(),
                                         again.data(), count);
                    EXPECT_EQ(h, again);
                    Bytes dcapped = dh;
                    table.softcap(dtype, capped.data(), 4.0, count);
                    table.softcap_backward(dtype, dcapped.data(), capped.data(), 4.0, count);
                    return std::vector<Bytes>{h, dgate, dup, capped, dcapped};
                  }});
  runs.push_back({"products and attention of single tokens", [=](const Table& table) {
                    const int64_t outputs = 9;
                    const Bytes x = random(acc, count, 1), w = random(dtype, width * outputs, 2), bias = random(acc, outputs, 3);
                    Bytes plain = zeros(acc, rows * outputs), transposed = plain, o = zeros(dtype, width), scratch = zeros(acc, rows + 16);
                    RowProductArgs args{dtype, x.data(), w.data(), bias.data(), plain.data(), rows, width, outputs, 0, 4, false};
                    table.row_product(args);
                    args.first = 4;
                    args.last = outputs;
                    table.row_product(args);
                    args.first = 0;
                    args.transposed = true;
                    args.out = transposed.data();
                    table.row_product(args);
                    const Bytes q = random(dtype, width, 4), keys = random(dtype, count, 5), values = random(dtype, count, 6);
                    table.token_attention({dtype, q.data(), keys.data(), values.data(), o.data(), scratch.data(), 1, rows, width, width,
                                           1, 0.3, 4.0});
                    return std::vector<Bytes>{plain, transposed, o};
                  }});
  runs.push_back({"rope", [=](const Table& table) {
                    Bytes x = random(dtype, count * 2, 1);
                    const Bytes cosine = random(acc, 4 * width, 2), sine = random(acc, 4 * width, 3);
                    std::vector<int32_t> position;
                    for (int64_t t = 0; t < rows; ++t) position.push_back(static_cast<int32_t>(t % 4));
                    Bytes part = x;
                    table.rope({dtype, x.data(), rows, 1, 2 * width, 2 * width, 2 * width, position.data(), cosine.data(),
                                sine.data(), true});
                    table.rope({dtype, part.data(), rows, 1, 2 * width, 2 * width, width / 2 * 2, position.data(),
                                cosine.data(), sine.data(), false});
                    return std::vector<Bytes>{x, part};
                  }});
  runs.push_back({"cross_entropy", [=](const Table& table) {
                    Bytes z = random(dtype, count, 1, 20);
                    std::vector<int64_t> target;
                    for (int64_t r = 0; r < rows; ++r) target.push_back(r * 7 % width);
                    Bytes nll = zeros(acc, rows), entropy = nll, scratch = zeros(acc, width);
                    Bytes top1(static_cast<size_t>(rows));
                    table.cross_entropy({dtype, z.data(), target.data(), nll.data(), entropy.data(),
                                         reinterpret_cast<bool*>(top1.data()), scratch.data(), rows, width, 0.1, true});
                    return std::vector<Bytes>{z, nll, entropy, top1};
                  }});
  runs.push_back({"sums and conversions", [=](const Table& table) {
                    const Bytes x = random(dtype, count, 1), y = random(dtype, count, 2);
                    Bytes sum = random(acc, count, 3), columns = zeros(acc, width), dots = zeros(acc, rows);
                    table.add_into(sum.data(), dtype, x.data(), count);
                    table.column_sums(dtype, x.data(), rows, width, columns.data());
                    table.head_dots(dtype, x.data(), width, y.data(), width, rows, 1, width, dots.data(), rows);
                    std::vector<Bytes> out{sum, columns, dots};
                    for (const Dtype to : {Dtype::Bf16, Dtype::F32, Dtype::F64}) {
                      out.push_back(zeros(to, count));
                      table.convert(acc, sum.data(), to, out.back().data(), count);
                    }
                    return out;
                  }});
  runs.push_back({"layer_norm", [=](const Table& table) {
                    Bytes x = random(acc, count, 1), delta = random(dtype, count, 2), w = random(acc, width, 3);
                    const Bytes b = random(acc, width, 4);
                    Bytes y = zeros(dtype, count), mean = zeros(acc, rows), rstd = mean;
                    table.layer_norm({acc, dtype, dtype, x.data(), delta.data(), w.data(), b.data(), mean.data(),
                                      rstd.data(), y.data(), rows, width, 1e-5, false});
                    Bytes dy = random(acc, count, 5), dx = dy, dw = zeros(acc, width), db = dw;
                    Bytes scratch = zeros(acc, 2 * width);
                    table.layer_norm_backward({acc, dy.data(), x.data(), mean.data(), rstd.data(), w.data(), dx.data(),
                                               dw.data(), db.data(), scratch.data(), rows, width});
                    return std::vector<Bytes>{x, y, mean, rstd, dx, dw, db};
                  }});
  for (const Function function : {Function::Gelu, Function::GeluTanh, Function::Relu, Function::Tanh}) {
    runs.push_back({"activation " + std::to_string(static_cast<int>(function)), [=](const Table& table) {
                      const Bytes x = random(dtype, count, 1, 9), dy = random(dtype, count, 2);
                      Bytes y = zeros(dtype, count), dx = y, again = y;
                      table.activation(function, dtype, x.data(), y.data(), count);
                      table.activation_backward(function, dtype, dy.data(), x.data(), dx.data(), again.data(), count);
                      EXPECT_EQ(y, again);
                      return std::vector<Bytes>{y, dx};
                    }});
  }
  runs.push_back({"dropout and binary cross entropy", [=](const Table& table) {
                    std::vector<uint32_t> words(static_cast<size_t>((count + 15) / 16 * 16));
                    RandomStream{.ordinal = 4}.fill(words.data(), 0, words.size());
                    const Bytes x = random(dtype, count, 1), z = random(acc, count, 2, 30), y = random(acc, count, 3, 1);
                    Bytes dropped = zeros(dtype, count), widened = zeros(acc, count), loss = widened, grad = widened;
                    table.drop(dtype, x.data(), dtype, dropped.data(), count, words.data(), 1U << 30, 4.0 / 3);
                    table.drop(dtype, x.data(), acc, widened.data(), count, words.data(), 1U << 30, 4.0 / 3);
                    table.binary_cross_entropy({acc, z.data(), y.data(), loss.data(), grad.data(), count, 0.25});
                    return std::vector<Bytes>{dropped, widened, loss, grad};
                  }});
  struct Kind {
    bool dropout, causal;
    int64_t window;
    double softcap;
  };
  for (const auto& [dropout, causal, window, softcap] : {Kind{false, true, 0, 0}, {true, true, 0, 0}, {false, false, 0, 0},
                                                         {true, false, 0, 0}, {true, true, 21, 0}, {false, true, 5, 3}}) {
    const std::string name = std::string(causal ? "causal " : "") + (dropout ? "softmax with dropout" : "softmax") +
                             (window > 0 ? " in a window" : "") + (softcap > 0 ? " of capped scores" : "");
    runs.push_back({name, [=, dropout = dropout, causal = causal, window = window, softcap = softcap](const Table& table) {
                      // Two stacked heads of `rows` queries that follow `width` others; the last two rows are padding.
                      const int64_t cols = (rows + width + 15) / 16 * 16, cells = 2 * rows * cols;
                      const int64_t queries = rows + width - 2;
                      Bytes s = random(dtype, cells, 1, 9), dp = random(dtype, cells, 2), again = s;
                      Bytes lse = zeros(acc, 2 * cols), scratch = zeros(acc, cols);
                      const Bytes delta = random(acc, 2 * cols, 3);
                      std::vector<uint32_t> words(static_cast<size_t>(cells));
                      RandomStream{.ordinal = 4}.fill(words.data(), 0, words.size());
                      SoftmaxArgs args{dtype, s.data(), nullptr, 2, rows, cols, width, queries, causal, window, 0.3, softcap,
                                       lse.data(), delta.data(), cols, scratch.data(), dropout ? words.data() : nullptr,
                                       1U << 30, 4.0 / 3};
                      table.softmax_forward(args);
                      args.s = again.data();
                      args.dp = dp.data();
                      table.softmax_backward(args);
                      return std::vector<Bytes>{s, lse, again, dp};
                    }});
  }
  return runs;
}

TEST(Paths, GiveTheSameBits) {
  const Table& plain = *table_of(Path::Plain);
  int compared = 0;
  for (const Path path : {Path::Avx2, Path::Avx512}) {
    const Table* table = table_of(path);
    if (table == nullptr) continue;
    for (const Dtype dtype : {Dtype::Bf16, Dtype::F32, Dtype::F64}) {
      for (const auto& [rows, width] : {std::pair{5, 8}, {37, 64}, {33, 75}, {40, 576}}) {
        for (const Computation& run : runs_of(dtype, rows, width)) {
          EXPECT_EQ(run.results(*table), run.results(plain))
              << run.name << ", path " << static_cast<int>(path) << ", dtype " << static_cast<int>(dtype) << ", "
              << rows << " x " << width;
          ++compared;
        }
      }
    }
  }
  // On a processor with neither set the plain path is all there is, and it must at least repeat itself.
  if (compared == 0) {
    for (const Computation& run : runs_of(Dtype::F32, 33, 75)) {
      EXPECT_EQ(run.results(plain), run.results(plain)) << run.name;
    }
  }
}

TEST(Paths, ElementaryFunctionsGiveTheSameBits) {
  std::vector<float> x;
  for (int i = -9500; i <= 9500; ++i) x.push_back(static_cast<float>(i) * 0.0097F);
  for (const Path path : {Path::Avx2, Path::Avx512}) {
    const Table* table = table_of(path);
    if (table == nullptr) continue;
    for (const auto function : {&Table::exp_f32, &Table::sigmoid_f32, &Table::log_f32}) {
      std::vector<float> wanted(x.size()), got(x.size());
      (table_of(Path::Plain)->*function)(x.data(), wanted.data(), static_cast<int64_t>(x.size()));
      (table->*function)(x.data(), got.data(), static_cast<int64_t>(x.size()));
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), x.size() * sizeof(float)), 0);
    }
  }
  EXPECT_NE(table_of(Path::Plain), nullptr);
}

TEST(Paths, TheWidestOneIsUsed) {
  for (const Path path : {Path::Avx512, Path::Avx2, Path::Plain}) {
    if (table_of(path) == nullptr) continue;
    EXPECT_EQ(&table(), table_of(path));
    break;
  }
}

}  // namespace
}  // namespace lockstep::kernels::cpu
