#include "kernels/support.h"

#include "lockstep/base/philox.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/binary_cross_entropy.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace lockstep::kernels::test {

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, uint64_t ordinal) {
  at::Tensor x = at::empty(shape, at::kDouble);
  std::vector<uint32_t> words(static_cast<size_t>(x.numel()));
  RandomStream{.seed = 7, .purpose = RandomPurpose::Test, .ordinal = ordinal}.fill(words.data(), 0, words.size());
  double* out = x.mutable_data_ptr<double>();
  for (size_t i = 0; i < words.size(); ++i) out[i] = words[i] * 0x1p-31 - 1;
  return x.to(dtype);
}

at::Tensor ints(const std::vector<int32_t>& values) {
  at::Tensor x = at::empty({static_cast<int64_t>(values.size())}, at::kInt);
  std::memcpy(x.mutable_data_ptr(), values.data(), values.size() * sizeof values[0]);
  return x;
}

at::Tensor longs(const std::vector<int64_t>& values) {
  at::Tensor x = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::memcpy(x.mutable_data_ptr(), values.data(), values.size() * sizeof values[0]);
  return x;
}

at::Tensor shifted(const at::Tensor& x, int64_t bytes) {
  const auto size = static_cast<size_t>(x.nbytes());
  char* base = static_cast<char*>(std::aligned_alloc(64, (size + 191) / 64 * 64));
  // What lies around the operand must not matter: not zero.
  std::memset(base, 0x5A, (size + 191) / 64 * 64);
  std::memcpy(base + bytes, x.const_data_ptr(), size);
  return at::from_blob(base + bytes, x.sizes(), [base](void*) { std::free(base); }, x.options());
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), static_cast<size_t>(a.nbytes())) == 0;
}

double max_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble).contiguous();
  const at::Tensor y = b.to(at::kDouble).contiguous();
  if (x.sizes() != y.sizes()) return INFINITY;
  double worst = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double difference = std::abs(x.const_data_ptr<double>()[i] - y.const_data_ptr<double>()[i]);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

double relative_l2(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble).contiguous();
  const at::Tensor y = b.to(at::kDouble).contiguous();
  if (x.sizes() != y.sizes()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = x.const_data_ptr<double>()[i];
    const double v = y.const_data_ptr<double>()[i];
    difference += (u - v) * (u - v);
    norm += v * v;
  }
  return std::sqrt(difference / norm);
}

double epsilon(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 0x1p-7 : dtype == at::kFloat ? 0x1p-23 : 0x1p-52;
}

RopeTable small_rope_table(int64_t width, int64_t positions, at::ScalarType dtype) {
  at::Tensor frequencies = at::empty({width / 2}, at::kDouble);
  for (int64_t i = 0; i < width / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(width);
    frequencies.mutable_data_ptr<double>()[i] = std::pow(10000.0, exponent);
  }
  return rope_table(frequencies, positions, 1.0, dtype);
}

namespace {

using Tensors = std::vector<at::Tensor>;

at::ScalarType statistics(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

void add_linear(std::vector<Case>& cases, int64_t tokens, int64_t inputs, int64_t outputs, at::ScalarType dtype) {
  const auto name = fmt::format("T={} I={} O={} {}", tokens, inputs, outputs, c10::toString(dtype));
  const at::Tensor x = random({tokens, inputs}, dtype, 1);
  const at::Tensor w = random({outputs, inputs}, dtype, 2);
  const at::Tensor dy = random({tokens, outputs}, dtype, 3);
  cases.push_back({"linear_forward " + name, {x, w}, [](Tensors t) { return Tensors{linear_forward(t[0], t[1])}; }});
  cases.push_back({"linear_backward_input " + name, {dy, w}, [](Tensors t) {
                     return Tensors{linear_backward_input(t[0], t[1])};
                   }});
  cases.push_back({"linear_backward_weight " + name, {dy, x}, [](Tensors t) {
                     return Tensors{linear_backward_weight(t[0], t[1])};
                   }});
  cases.push_back({"linear with bias " + name, {x, w, random({outputs}, at::kFloat, 4).to(statistics(dtype)), dy},
                   [](Tensors t) { return Tensors{linear_forward(t[0], t[1], t[2]), linear_backward_bias(t[3])}; }});
}

void add_attention_path(std::vector<Case>& cases, std::vector<int64_t> starts, int64_t heads, int64_t kv_heads,
                        int64_t width, double dropout, at::ScalarType dtype, bool causal, AttentionPath path) {
  const int64_t tokens = starts.back();
  Case c{fmt::format("attention T={} docs={} N={} K={} D={} dropout={} causal={} path={} {}", tokens, starts.size() - 1,
                     heads, kv_heads, width, dropout, causal, static_cast<int>(path), c10::toString(dtype)),
         {random({tokens, heads, width}, dtype, 1), random({tokens, kv_heads, width}, dtype, 2),
          random({tokens, kv_heads, width}, dtype, 3), random({tokens, heads, width}, dtype, 4)},
         {}};
  c.run = [starts, dropout, width, causal, path](Tensors t) {
    std::vector<uint64_t> ordinals(starts.size() - 1);
    for (size_t d = 0; d < ordinals.size(); ++d) ordinals[d] = 10 + d;
    const AttentionConfig config{1 / std::sqrt(static_cast<double>(width)), {dropout, 3, 5, ordinals}, causal, path};
    const AttentionSaved saved = attention_forward(t[0], t[1], t[2], starts, config);
    const AttentionGrads grads = attention_backward(t[3], t[0], t[1], t[2], saved, starts, config);
    return Tensors{saved.o_TND, saved.lse_NT, grads.dq_TND, grads.dk_TKD, grads.dv_TKD};
  };
  cases.push_back(std::move(c));
}
void add_attention(std::vector<Case>& cases, std::vector<int64_t> starts, int64_t heads, int64_t kv_heads,
                   int64_t width, double dropout, at::ScalarType dtype, bool causal = true) {
  for (const AttentionPath path : attention_paths(dtype, width)) {
    add_attention_path(cases, starts, heads, kv_heads, width, dropout, dtype, causal, path);
  }
}

void add_norms(std::vector<Case>& cases, int64_t rows, int64_t width, at::ScalarType x_dtype, at::ScalarType y_dtype) {
  const auto name = fmt::format("R={} N={} {} to {}", rows, width, c10::toString(x_dtype), c10::toString(y_dtype));
  const at::Tensor w = random({width}, statistics(x_dtype), 9);
  cases.push_back({"rms_norm " + name,
                   {random({rows, width}, x_dtype, 1), w, random({rows, width}, y_dtype, 2),
                    random({rows, width}, x_dtype, 3)},
                   [y_dtype](Tensors t) {
                     const auto forward = rms_norm_forward(t[0], t[1], 1e-5, y_dtype);
                     const auto again = rms_norm_apply(t[0], forward.rstd_R, t[1], y_dtype);
                     const auto dw = rms_norm_backward(t[2], t[0], forward.rstd_R, t[1], t[3]);
                     return Tensors{forward.y_RN, forward.rstd_R, again, dw, t[3]};
                   }});
  cases.push_back({"add_rms_norm " + name, {random({rows, width}, x_dtype, 1), random({rows, width}, y_dtype, 2), w},
                   [y_dtype](Tensors t) {
                     const auto forward = add_rms_norm_forward(t[0], t[1], t[2], 1e-5, y_dtype);
                     return Tensors{t[0], forward.y_RN, forward.rstd_R};
                   }});
}

void add_layer_norms(std::vector<Case>& cases, int64_t rows, int64_t width, at::ScalarType y_dtype) {
  const at::ScalarType stream = statistics(y_dtype);
  cases.push_back({fmt::format("layer_norm R={} N={} to {}", rows, width, c10::toString(y_dtype)),
                   {random({rows, width}, stream, 1), random({rows, width}, y_dtype, 2), random({width}, stream, 3),
                    random({width}, stream, 4), random({rows, width}, stream, 5)},
                   [y_dtype](Tensors t) {
                     const auto plain = layer_norm_forward(t[0], t[2], t[3], 1e-5, y_dtype);
                     const auto added = add_layer_norm_forward(t[0], t[1], t[2], t[3], 1e-5, y_dtype);
                     const auto again = layer_norm_apply(t[0], added.moments, t[2], t[3], y_dtype);
                     const auto grads = layer_norm_backward(t[4], t[0], added.moments, t[2]);
                     return Tensors{plain.y_RN, t[0], added.y_RN, added.moments.mean_R, added.moments.rstd_R, again,
                                    t[4], grads.dw_N, grads.db_N};
                   }});
}

void add_elementwise(std::vector<Case>& cases, int64_t tokens, int64_t width, at::ScalarType dtype) {
  const auto name = fmt::format("T={} N={} {}", tokens, width, c10::toString(dtype));
  for (const Activation activation : {Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Tanh}) {
    cases.push_back({fmt::format("activation {} {}", static_cast<int>(activation), name),
                     {random({tokens, width}, dtype, 1) * 3, random({tokens, width}, dtype, 2)},
                     [activation](Tensors t) {
                       at::Tensor y;
                       const at::Tensor dx = activation_backward(activation, t[1], t[0], &y);
                       return Tensors{activation_forward(activation, t[0]), dx, y};
                     }});
  }
  cases.push_back({"dropout " + name, {random({tokens, width}, dtype, 1)}, [tokens, dtype](Tensors t) {
                     const std::vector<int64_t> starts{0, tokens / 3, tokens};
                     const std::vector<uint64_t> ordinals{4, 9};
                     const Dropout config{0.3, 11, 2, 7};
                     return Tensors{dropout(t[0], dtype, starts, ordinals, config),
                                    dropout(t[0], statistics(dtype), starts, ordinals, config)};
                   }});
  cases.push_back({"binary_cross_entropy " + name,
                   {random({tokens, width}, statistics(dtype), 1) * 20, random({tokens, width}, statistics(dtype), 2).abs()},
                   [](Tensors t) {
                     const auto result = binary_cross_entropy(t[0], t[1], 0.25);
                     return Tensors{result.loss_DC, result.grad_DC};
                   }});
  std::vector<int32_t> a, b;
  for (int64_t t = 0; t < tokens; ++t) {
    a.push_back(static_cast<int32_t>(t * 7 % 13));
    b.push_back(static_cast<int32_t>(t % 2));
  }
  cases.push_back({"embedding_sum " + name, {ints(a), random({13, width}, dtype, 1), ints(b), random({2, width}, dtype, 2)},
                   [](Tensors t) { return Tensors{embedding_sum_forward({{t[0], t[1]}, {t[2], t[3]}})}; }});
}

void add_pointwise(std::vector<Case>& cases, int64_t tokens, int64_t heads, int64_t width, int64_t mlp,
                   at::ScalarType dtype) {
  const auto name = fmt::format("T={} N={} D={} M={} {}", tokens, heads, width, mlp, c10::toString(dtype));
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<int32_t>(t % 50));
  const RopeTable table = small_rope_table(width, 50, dtype);
  cases.push_back({"rope " + name,
                   {random({tokens, heads, width}, dtype, 1), ints(positions), table.cos_PD2, table.sin_PD2,
                    random({tokens, heads, width}, dtype, 2)},
                   [](Tensors t) {
                     rope_forward(t[0], t[1], {t[2], t[3]});
                     rope_backward(t[4], t[1], {t[2], t[3]});
                     return Tensors{t[0], t[4]};
                   }});
  cases.push_back({"swiglu " + name,
                   {random({tokens, mlp}, dtype, 1), random({tokens, mlp}, dtype, 2), random({tokens, mlp}, dtype, 3)},
                   [](Tensors t) {
                     at::Tensor h;
                     const auto grads = swiglu_backward(t[2], t[0], t[1], Gate::Silu, &h);
                     return Tensors{swiglu_forward(t[0], t[1]), grads.dgate_TM, grads.dup_TM, h};
                   }});
}

void add_vocabulary(std::vector<Case>& cases, int64_t tokens, int64_t vocab, int64_t hidden, at::ScalarType dtype) {
  const auto name = fmt::format("C={} V={} {}", tokens, vocab, c10::toString(dtype));
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(t * 7919 % vocab));
  cases.push_back({"cross_entropy " + name, {random({tokens, vocab}, dtype, 1), ints(ids)}, [](Tensors t) {
                     const auto result = cross_entropy(t[0], t[1], 0.01, true);
                     return Tensors{result.nll_C, result.entropy_C, result.top1_C, t[0]};
                   }});
  cases.push_back({"embedding " + name, {ints(ids), random({vocab, hidden}, dtype, 2)}, [dtype](Tensors t) {
                     return Tensors{embedding_forward(t[0], t[1], statistics(dtype))};
                   }});
  const at::Tensor rows = longs({2, 0, tokens - 1, 2});
  cases.push_back({"rows and conversions " + name,
                   {random({tokens, hidden}, dtype, 3), rows, random({tokens, hidden}, statistics(dtype), 4)},
                   [](Tensors t) {
                     const at::Tensor taken = gather_rows(t[0], t[1]);
                     add_into(t[2], t[0]);
                     scatter_rows(t[0], t[1], taken);
                     return Tensors{taken, t[2], t[0], convert(t[2], at::kBFloat16), convert(t[2], at::kFloat),
                                    convert(t[2], at::kDouble)};
                   }});
}

}  // namespace

std::vector<AttentionPath> attention_paths(at::ScalarType dtype, int64_t width) {
  if (attention_path(dtype, width) == AttentionPath::Products) return {AttentionPath::Products};
  return {AttentionPath::Products, AttentionPath::Tiles};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::ScalarType residual = statistics(dtype);
    for (const int64_t tokens : {1, 8, 37, 200, 600}) {
      if (dtype == at::kDouble && tokens > 40) continue;  // float64 serves the Jacobian tests
      for (const auto& [inputs, outputs] : {std::pair{64, 64}, {64, 32}, {64, 96}, {96, 64}, {64, 512}}) {
        add_linear(cases, tokens, inputs, outputs, dtype);
      }
      if (tokens > 200) continue;
      add_norms(cases, tokens, 64, residual, dtype);
      add_norms(cases, tokens, 16, dtype, dtype);
      add_layer_norms(cases, tokens, 75, dtype);
      add_elementwise(cases, tokens, 75, dtype);
      add_pointwise(cases, tokens, 4, 16, 96, dtype);
    }
    for (const double dropout : {0.0, 0.3}) {
      add_attention(cases, {0, 8, 9, 52, 300}, 4, 2, 16, dropout, dtype);
      add_attention(cases, {0, 8, 9, 52, 300}, 4, 4, 16, dropout, dtype, false);
    }
    if (dtype == at::kBFloat16) {
      add_attention(cases, {0, 8, 9, 52, 300}, 4, 2, 32, 0.3, dtype);
      add_attention(cases, {0, 8, 9, 52, 300}, 4, 4, 32, 0.3, dtype, false);
    }
    if (dtype != at::kDouble) {
      add_attention(cases, {0, 600}, 4, 4, 16, 0, dtype);
      add_attention(cases, {0, 600}, 4, 4, 16, 0, dtype, false);
    }
    add_vocabulary(cases, 37, 512, 64, dtype);
  }
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const auto& [inputs, outputs] : {std::pair{576, 576}, {576, 192}, {576, 1536}, {1536, 576}}) {
      add_linear(cases, 215, inputs, outputs, dtype);
    }
    add_norms(cases, 215, 576, at::kFloat, dtype);
    add_pointwise(cases, 215, 9, 64, 1536, dtype);
    add_attention(cases, {0, 215, 615}, 9, 3, 64, 0, dtype);
    add_vocabulary(cases, 3, 49152, 64, dtype);
  }
  return cases;
}

}  // namespace lockstep::kernels::test
