// Results depend on values and shapes alone: not on where operands lie, on the thread or on neighbours in a grain.
#include "kernels/support.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace lockstep::kernels::test {
namespace {

/// Byte offsets for the operands of one repetition: each operand gets another one, all multiples of its element size.
std::vector<at::Tensor> moved(const std::vector<at::Tensor>& operands, size_t repetition) {
  constexpr int64_t kOffsets[] = {0, 2, 16, 60, 8, 32, 4, 62};
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < operands.size(); ++i) {
    const int64_t size = operands[i].element_size();
    const int64_t offset = kOffsets[(repetition + 3 * i) % std::size(kOffsets)];
    out.push_back(shifted(operands[i], (offset + size - 1) / size * size));
  }
  return out;
}

testing::AssertionResult all_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  if (got.size() != wanted.size()) return testing::AssertionFailure() << "number of results differs";
  for (size_t i = 0; i < got.size(); ++i) {
    if (!same_bits(got[i], wanted[i])) return testing::AssertionFailure() << "result " << i << " differs";
  }
  return testing::AssertionSuccess();
}

TEST(Bits, DoNotDependOnWhereOperandsLie) {
  for (const Case& c : all_cases()) {
    const auto wanted = c.run(moved(c.operands, 0));
    for (size_t repetition = 1; repetition < 6; ++repetition) {
      EXPECT_TRUE(all_same(c.run(moved(c.operands, repetition)), wanted)) << c.name << ", repetition " << repetition;
    }
  }
}

TEST(Bits, DoNotDependOnTheThreadOrOnOthersAtWork) {
  const auto cases = all_cases();
  constexpr size_t kThreads = 3;
  std::vector<std::vector<std::vector<at::Tensor>>> results(kThreads);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      results[thread].resize(cases.size());
      // Each thread begins elsewhere, so that different kernels meet.
      for (size_t i = 0; i < cases.size(); ++i) {
        const size_t index = (i + thread * cases.size() / kThreads) % cases.size();
        results[thread][index] = cases[index].run(moved(cases[index].operands, thread));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t index = 0; index < cases.size(); ++index) {
    const auto wanted = cases[index].run(moved(cases[index].operands, 0));
    for (size_t thread = 0; thread < kThreads; ++thread) {
      EXPECT_TRUE(all_same(results[thread][index], wanted)) << cases[index].name << ", thread " << thread;
    }
  }
}

/// Head width 32 is for the path on tiles.
TEST(Bits, ADocumentOfAPackedGrainEqualsTheDocumentAlone) {
  for (const auto& [dtype, width] : {std::pair{at::kBFloat16, 16}, {at::kBFloat16, 32}, {at::kFloat, 16},
                                     {at::kDouble, 16}}) {
    const std::vector<int64_t> starts{0, 40, 41, 215, 630};
    const std::vector<uint64_t> ordinals{4, 9, 2, 7};
    const at::Tensor q = random({630, 6, width}, dtype, 1);
    const at::Tensor k = random({630, 2, width}, dtype, 2);
    const at::Tensor v = random({630, 2, width}, dtype, 3);
    const at::Tensor d_o = random({630, 6, width}, dtype, 4);
    const AttentionConfig packed{0.25, {0.2, 11, 1, ordinals}};
    const auto saved = attention_forward(q, k, v, starts, packed);
    const auto grads = attention_backward(d_o, q, k, v, saved, starts, packed);
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      const auto part = [&](const at::Tensor& x) { return x.slice(0, starts[d], starts[d + 1]).contiguous(); };
      const std::vector<int64_t> alone{0, starts[d + 1] - starts[d]};
      const AttentionConfig config{0.25, {0.2, 11, 1, std::span(&ordinals[d], 1)}};
      const auto saved_alone = attention_forward(part(q), part(k), part(v), alone, config);
      const auto grads_alone = attention_backward(part(d_o), part(q), part(k), part(v), saved_alone, alone, config);
      EXPECT_TRUE(same_bits(saved_alone.o_TND, part(saved.o_TND))) << dtype << " width " << width << " document " << d;
      EXPECT_TRUE(same_bits(grads_alone.dq_TND, part(grads.dq_TND)))
          << dtype << " width " << width << " document " << d;
      EXPECT_TRUE(same_bits(grads_alone.dk_TKD, part(grads.dk_TKD)))
          << dtype << " width " << width << " document " << d;
      EXPECT_TRUE(same_bits(grads_alone.dv_TKD, part(grads.dv_TKD)))
          << dtype << " width " << width << " document " << d;
    }
  }
}

TEST(Bits, AttentionAndRopeReadSlicesOfAFusedBuffer) {
  for (const auto& [dtype, width] : {std::pair{at::kBFloat16, 16}, {at::kBFloat16, 32}, {at::kFloat, 16},
                                     {at::kDouble, 16}}) {
    at::Tensor fused = random({50, 8, width}, dtype, 1);
    at::Tensor q = fused.slice(1, 0, 4);
    const at::Tensor k = fused.slice(1, 4, 6);
    const at::Tensor v = fused.slice(1, 6, 8);
    at::Tensor q_dense = q.contiguous();
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < 50; ++t) positions.push_back(t);
    const RopeTable table = small_rope_table(width, 50, dtype);
    rope_forward(q_dense, ints(positions), table);
    rope_forward(q, ints(positions), table);
    EXPECT_TRUE(same_bits(q.contiguous(), q_dense)) << dtype << " width " << width;

    const AttentionConfig config{0.25, {}};
    const std::vector<int64_t> starts{0, 50};
    const auto sliced = attention_forward(q, k, v, starts, config);
    const auto dense = attention_forward(q_dense, k.contiguous(), v.contiguous(), starts, config);
    EXPECT_TRUE(same_bits(sliced.o_TND, dense.o_TND)) << dtype << " width " << width;
    const at::Tensor d_o = random({50, 4, width}, dtype, 2);
    const auto sliced_grads = attention_backward(d_o, q, k, v, sliced, starts, config);
    const auto dense_grads = attention_backward(d_o, q_dense, k.contiguous(), v.contiguous(), dense, starts, config);
    EXPECT_TRUE(same_bits(sliced_grads.dk_TKD, dense_grads.dk_TKD)) << dtype << " width " << width;
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
