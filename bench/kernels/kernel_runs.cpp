#include "kernel_runs.h"

#include "lockstep/base/philox.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/tensor/round.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

namespace lockstep::bench {
namespace {

using kernels::cpu::Dtype;
using kernels::cpu::Function;
using kernels::cpu::Path;
using kernels::cpu::Table;
using tensor::ExactPath;

/// Memory with values between -1 and 1 that repeat, and a copy of which shares it.
template <class T>
class Operand {
 public:
  explicit Operand(int64_t count) : data_(std::make_shared<std::vector<T>>(static_cast<size_t>(count))) {
    constexpr int64_t kPeriod = 1 << 15;
    std::vector<uint32_t> words(static_cast<size_t>(std::min(count, kPeriod)));
    RandomStream{.purpose = RandomPurpose::Test, .ordinal = 5}.fill(words.data(), 0, words.size());
    for (size_t i = 0; i < data_->size(); ++i) (*data_)[i] = value(words[i % words.size()]);
  }
  T* get() const { return data_->data(); }
  std::span<T> span() const { return *data_; }

 private:
  static T value(uint32_t word) {
    const float number = static_cast<float>(word) * 0x1p-31F - 1;
    if constexpr (std::is_same_v<T, uint16_t>) {
      uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof(bits));
      return static_cast<uint16_t>(bits >> 16);
    } else if constexpr (std::is_same_v<T, float>) {
      return number;
    } else {
      return static_cast<T>(word % 1000);
    }
  }
  std::shared_ptr<std::vector<T>> data_;
};

using Bf16s = Operand<uint16_t>;
using Floats = Operand<float>;
using Maker = std::function<KernelRun()>;

constexpr int64_t kHidden = 576, kMlp = 1536, kVocab = 49152, kKeys = 512;

void add_norms(std::vector<Maker>& out, int64_t rows, const Table& t) {
  const int64_t cells = rows * kHidden;
  out.push_back([=, &t] {
    const Floats x(cells), w(kHidden), rstd(rows);
    const Bf16s delta(cells), y(cells);
    return KernelRun{"add and RMSNorm", cells * 12, [=, &t] {
                       t.rms_norm({Dtype::F32, Dtype::Bf16, Dtype::Bf16, x.get(), delta.get(), w.get(), rstd.get(), y.get(),
                                   rows, kHidden, 1e-5, false});
                     }};
  });
  out.push_back([=, &t] {
    const Floats x(cells), dx(cells), w(kHidden), dw(kHidden), scratch(kHidden), rstd(rows);
    const Bf16s dy(cells);
    return KernelRun{"RMSNorm backward", cells * 14, [=, &t] {
                       t.rms_norm_backward({Dtype::Bf16, Dtype::F32, Dtype::F32, dy.get(), x.get(), rstd.get(), w.get(),
                                            dx.get(), dw.get(), scratch.get(), rows, kHidden});
                     }};
  });
  out.push_back([=, &t] {
    const Floats x(cells), w(kHidden), b(kHidden), mean(rows), rstd(rows);
    const Bf16s delta(cells), y(cells);
    return KernelRun{"add and LayerNorm", cells * 12, [=, &t] {
                       t.layer_norm({Dtype::F32, Dtype::Bf16, Dtype::Bf16, x.get(), delta.get(), w.get(), b.get(),
                                     mean.get(), rstd.get(), y.get(), rows, kHidden, 1e-5, false});
                     }};
  });
  out.push_back([=, &t] {
    const Floats dy(cells), x(cells), w(kHidden), mean(rows), rstd(rows), dw(kHidden), db(kHidden), scratch(2 * kHidden);
    return KernelRun{"LayerNorm backward", cells * 12, [=, &t] {
                       t.layer_norm_backward({Dtype::F32, dy.get(), x.get(), mean.get(), rstd.get(), w.get(), dy.get(),
                                              dw.get(), db.get(), scratch.get(), rows, kHidden});
                     }};
  });
}

void add_gates(std::vector<Maker>& out, int64_t rows, const Table& t) {
  const int64_t wide = rows * kMlp;
  out.push_back([=, &t] {
    const Bf16s gate(wide), up(wide), h(wide);
    return KernelRun{"SwiGLU", wide * 6, [=, &t] { t.swiglu(Dtype::Bf16, gate.get(), up.get(), h.get(), wide); }};
  });
  out.push_back([=, &t] {
    const Bf16s dh(wide), gate(wide), up(wide), dgate(wide), dup(wide), h(wide);
    return KernelRun{"SwiGLU backward and value", wide * 12, [=, &t] {
                       t.swiglu_backward(Dtype::Bf16, dh.get(), gate.get(), up.get(), dgate.get(), dup.get(), h.get(), wide);
                     }};
  });
  out.push_back([=, &t] {
    const Bf16s x(wide), y(wide);
    return KernelRun{"GELU", wide * 4, [=, &t] { t.activation(Function::Gelu, Dtype::Bf16, x.get(), y.get(), wide); }};
  });
  out.push_back([=, &t] {
    const Bf16s dy(wide), x(wide), y(wide);
    return KernelRun{"GELU backward and value", wide * 8, [=, &t] {
                       t.activation_backward(Function::Gelu, Dtype::Bf16, dy.get(), x.get(), dy.get(), y.get(), wide);
                     }};
  });
}

void add_moves(std::vector<Maker>& out, int64_t rows, const Table& t) {
  const int64_t cells = rows * kHidden;
  out.push_back([=, &t] {
    const Floats x(cells);
    const Bf16s y(cells);
    return KernelRun{"float32 to bf16", cells * 6,
                     [=, &t] { t.convert(Dtype::F32, x.get(), Dtype::Bf16, y.get(), cells); }};
  });
  out.push_back([=, &t] {
    const Floats sum(cells);
    const Bf16s x(cells);
    return KernelRun{"add bf16 to float32", cells * 10, [=, &t] { t.add_into(sum.get(), Dtype::Bf16, x.get(), cells); }};
  });
  out.push_back([=, &t] {
    const Bf16s x(cells), y(cells);
    const Operand<uint32_t> words(cells);
    return KernelRun{"dropout, words given", cells * 8, [=, &t] {
                       t.drop(Dtype::Bf16, x.get(), Dtype::Bf16, y.get(), cells, words.get(), 100, 1.1);
                     }};
  });
  out.push_back([=, &t] {
    const Bf16s x(cells);
    const Floats cosine(32 * 1024), sine(32 * 1024);
    const Operand<int32_t> position(rows);
    return KernelRun{"rotary embedding", cells * 4, [=, &t] {
                       t.rope({Dtype::Bf16, x.get(), rows, 9, 64, kHidden, 64, position.get(), cosine.get(), sine.get(), false});
                     }};
  });
}

void add_softmax(std::vector<Maker>& out, int64_t rows, const Table& t) {
  const int64_t cells = rows * kKeys, loss_rows = std::max<int64_t>(rows / 16, 1);
  for (const bool backward : {false, true}) {
    out.push_back([=, &t] {
      const Bf16s s(cells), dp(cells);
      const Floats lse(rows), delta(rows), scratch(kKeys);
      return KernelRun{backward ? "softmax of scores backward" : "softmax of scores", cells * (backward ? 8 : 4), [=, &t] {
                         kernels::cpu::SoftmaxArgs args{};
                         args.dtype = Dtype::Bf16;
                         args.s = s.get();
                         args.dp = backward ? dp.get() : nullptr;
                         args.part_rows = std::min(rows, kKeys);
                         args.groups = rows / args.part_rows;
                         args.cols = args.num_queries = kKeys;
                         args.scale = 0.125;
                         args.lse = lse.get();
                         args.delta = delta.get();
                         args.stat_stride = args.part_rows;
                         args.scratch = scratch.get();
                         (backward ? t.softmax_backward : t.softmax_forward)(args);
                       }};
    });
  }
  out.push_back([=, &t] {
    const Bf16s logits(loss_rows * kVocab);
    const Operand<int64_t> target(loss_rows);
    const Floats nll(loss_rows), entropy(loss_rows), scratch(kVocab);
    const auto top1 = std::make_shared<std::vector<char>>(static_cast<size_t>(loss_rows));
    return KernelRun{"softmax, loss and gradient", loss_rows * kVocab * 4, [=, &t] {
                       t.cross_entropy({Dtype::Bf16, logits.get(), target.get(), nll.get(), entropy.get(),
                                        reinterpret_cast<bool*>(top1->data()), scratch.get(), loss_rows, kVocab, 1e-3, true});
                     }};
  });
}

void add_sums_and_steps(std::vector<Maker>& out, int64_t rows, ExactPath path) {
  const int64_t cells = rows * kHidden;
  constexpr double kLimit = 0x1p62;
  out.push_back([=] {
    const Operand<int64_t> sum(cells);
    const Floats x(cells);
    return KernelRun{"exact sum", cells * 20, [=] { tensor::exact_add(sum.span(), x.span(), 40, kLimit, path); }};
  });
  out.push_back([=] {
    const Operand<int64_t> sum(cells);
    const Floats x(cells);
    return KernelRun{"exact sum, first", cells * 12, [=] { tensor::exact_set(sum.span(), x.span(), 40, kLimit, path); }};
  });
  out.push_back([=] {
    const Operand<int64_t> sum(cells);
    const Floats x(cells);
    return KernelRun{"exact sum to float32", cells * 12, [=] { tensor::exact_to_float(x.span(), sum.span(), 40, path); }};
  });
  out.push_back([=] {
    const Floats x(cells);
    return KernelRun{"squares", cells * 4, [=] {
                       constexpr size_t kPiece = 4096;
                       const auto all = x.span();
                       for (size_t i = 0; i < all.size(); i += kPiece) {
                         optim::sum_of_squares(all.subspan(i, std::min(kPiece, all.size() - i)), path);
                       }
                     }};
  });
  out.push_back([=] {
    const Floats master(cells), m(cells), v(cells), gradient(cells);
    return KernelRun{"AdamW", cells * 28, [=] {
                       optim::adamw_step(master.span(), m.span(), v.span(), gradient.span(), {.learning_rate = 1e-3}, path);
                     }};
  });
  out.push_back([=] {
    const Floats x(cells);
    const Bf16s y(cells);
    return KernelRun{"round to weights", cells * 6, [=] { tensor::round_to_bf16(y.span(), x.span(), path); }};
  });
}

}  // namespace

std::vector<Maker> kernel_runs(int64_t rows, Path path, ExactPath exact_path) {
  const Table& table = *kernels::cpu::table_of(path);
  std::vector<Maker> out;
  add_norms(out, rows, table);
  add_gates(out, rows, table);
  add_moves(out, rows, table);
  add_softmax(out, rows, table);
  add_sums_and_steps(out, rows, exact_path);
  return out;
}

}  // namespace lockstep::bench
