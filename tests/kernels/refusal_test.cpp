// Operands that do not fit are refused by name before anything is computed.
#include "kernels/support.h"
#include "lockstep/base/error.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <gtest/gtest.h>

namespace lockstep::kernels::test {
namespace {

void expect_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Internal);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Refusal, NamesTheOperandAndTheValue) {
  const at::Tensor x = random({4, 8}, at::kFloat, 1);
  const at::Tensor w = random({8}, at::kFloat, 2);
  const std::vector<int64_t> starts{0, 4};
  expect_refused([&] { linear_forward(x, random({3, 9}, at::kFloat, 2)); }, "x_TI is [4, 8], expected [4, 9]");
  expect_refused([&] { linear_forward(x, random({3, 8}, at::kBFloat16, 2)); }, "w_OI is BFloat16, expected Float");
  expect_refused([&] { linear_forward(x.t(), random({3, 4}, at::kFloat, 2)); }, "contiguous");
  expect_refused([&] { rms_norm_forward(x, w.to(at::kDouble), 1e-5, at::kFloat); }, "w_N is Double");
  expect_refused([&] { rms_norm_forward(x, w, 1e-5, at::kDouble); }, "float64");
  expect_refused([&] { swiglu_forward(x, random({4, 7}, at::kFloat, 2)); }, "up_TM is [4, 7]");
  expect_refused([&] { swiglu_forward(x.to(at::kHalf), x.to(at::kHalf)); }, "Half");
  expect_refused([&] { embedding_forward(ints({1, 4}), x, at::kFloat); }, "token id 4 at 1");
  expect_refused([&] { gather_rows(x, longs({-1})); }, "row -1 at 0");
  at::Tensor logits = x.clone();
  expect_refused([&] { cross_entropy(logits, ints({0, 1, 2, 8}), 1, true); }, "target 8 in row 3");
  at::Tensor heads = random({4, 2, 8}, at::kFloat, 1);
  expect_refused([&] { rope_forward(heads, ints({0, 1, 2, 3}), small_rope_table(8, 3, at::kFloat)); }, "position 3");
  const std::vector<int64_t> wrong{0, 3};
  expect_refused([&] { attention_forward(heads, heads, heads, wrong, {1, {}}); }, "doc_starts");
  const std::vector<int64_t> empty_document{0, 2, 2, 4};
  expect_refused([&] { attention_forward(heads, heads, heads, empty_document, {1, {}}); }, "document 1 has 0 tokens");
  expect_refused([&] { attention_forward(heads, heads, heads, starts, {1, {1.0, 0, 0, {}}}); }, "dropout = 1");
  expect_refused([&] { attention_forward(heads, heads, heads, starts, {1, {0.5, 0, 0, {}}}); }, "0 ordinals");
  const at::Tensor three = random({4, 3, 8}, at::kFloat, 1);
  expect_refused([&] { attention_forward(three, heads, heads, starts, {1, {}}); }, "3 heads over 2");
}

}  // namespace
}  // namespace lockstep::kernels::test
