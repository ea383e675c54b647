#include "model/classifier_rig.h"
#include "model/test_configs.h"
#include "model/test_encoders.h"

#include "lockstep/base/error.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::testing {
namespace {

using model::Encoder;
using tensor::ParamSpec;

const std::vector<float> kThreeLabels{2, 0, 1};

std::vector<std::string> names_of(const model::EncoderConfig& config) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : Encoder::param_specs(config)) names.push_back(spec.name);
  return names;
}

TEST(EncoderSpecs, FollowTheModuleTreeOfTransformers) {
  const auto bert = names_of(small_bert());
  EXPECT_EQ((std::vector<std::string>(bert.begin(), bert.begin() + 6)),
            (std::vector<std::string>{"bert.embeddings.word_embeddings.weight",
                                      "bert.embeddings.position_embeddings.weight",
                                      "bert.embeddings.token_type_embeddings.weight", "bert.embeddings.LayerNorm.weight",
                                      "bert.embeddings.LayerNorm.bias",
                                      "bert.encoder.layer.0.attention.self.query.weight"}));
  EXPECT_EQ((std::vector<std::string>(bert.end() - 4, bert.end())),
            (std::vector<std::string>{"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight",
                                      "classifier.bias"}));
  const auto roberta = names_of(small_roberta());
  EXPECT_EQ(roberta[4], "roberta.embeddings.position_embeddings.weight");
  EXPECT_EQ(roberta.back(), "classifier.out_proj.bias");
  const auto distilbert = names_of(small_distilbert());
  EXPECT_EQ(distilbert[4], "distilbert.transformer.layer.0.attention.q_lin.weight");
  EXPECT_EQ(distilbert[distilbert.size() - 4], "pre_classifier.weight");
  EXPECT_EQ(bert.size(), 5U + 2U * 16U + 4U);
  EXPECT_EQ(distilbert.size(), 4U + 2U * 16U + 4U);
}

TEST(EncoderSpecs, BiasesAndNormsDoNotDecayAndBlocksAreInOrder) {
  for (const auto& config : {small_bert(), small_roberta(), small_distilbert()}) {
    const tensor::ParamLayout layout(Encoder::param_specs(config));
    EXPECT_EQ(layout.num_blocks(), 4);
    for (int id = 0; id < layout.num_params(); ++id)
      EXPECT_EQ(layout.spec(id).decay, layout.spec(id).is_matrix()) << layout.spec(id).name;
    EXPECT_EQ(layout.spec(layout.num_params() - 1).block, 3);
    EXPECT_EQ(layout.spec(0).block, 0);
  }
}

/// Most contributions that one element of each parameter gets.
class ElementCounts : public tensor::GradSink {
 public:
  explicit ElementCounts(int num_params) : dense(static_cast<size_t>(num_params)), rows(dense.size()) {}
  void add(tensor::ParamId id, const at::Tensor&) override { ++dense[static_cast<size_t>(id)]; }
  void add_rows(tensor::ParamId id, const at::Tensor& which, const at::Tensor&) override {
    for (int64_t i = 0; i < which.numel(); ++i) ++rows[static_cast<size_t>(id)][which.const_data_ptr<int64_t>()[i]];
  }
  int64_t most(tensor::ParamId id) const {
    int64_t out = dense[static_cast<size_t>(id)];
    for (const auto& [row, count] : rows[static_cast<size_t>(id)]) out = std::max(out, count);
    return out;
  }
  std::vector<int64_t> dense;
  std::vector<std::map<int64_t, int64_t>> rows;
};

TEST(EncoderContributions, BoundWhatTheBackwardPassMakes) {
  for (const auto& config : {small_bert(), small_roberta(), small_distilbert()}) {
    ClassifierRig rig(config, at::kFloat);
    rig.randomise(1, 0.2);
    ElementCounts counts(rig.layout().num_params());
    // The second document repeats one token, so the word table's bound is reached but for the first document's tokens.
    ClassDocument same{std::vector<int32_t>(30, 7), {}};
    rig.backward(pack_classes({random_class_document(20, 6, 0), same}), {1, 2}, {}, 3, model::Keep::All, counts);
    rig.backward(pack_classes({random_class_document(10, 48, 2)}), {0}, {}, 3, model::Keep::All, counts);
    const auto bounds = rig.encoder().contributions(2, 60, 3);
    for (int id = 0; id < rig.layout().num_params(); ++id) {
      EXPECT_LE(counts.most(id), bounds[static_cast<size_t>(id)]) << rig.layout().spec(id).name;
      EXPECT_GE(counts.most(id), 2) << rig.layout().spec(id).name;
    }
    EXPECT_EQ(counts.most(rig.id(config.prefix + "embeddings.position_embeddings.weight")), 3);
    EXPECT_GE(counts.most(rig.id(config.prefix + "embeddings.word_embeddings.weight")), 30);
  }
}

TEST(EncoderEmbedding, RobertaCountsPositionsAfterThePaddingToken) {
  const model::EncoderConfig config = small_roberta();
  ClassifierRig rig(config, at::kFloat);
  rig.randomise(1, 0.2);
  ElementCounts counts(rig.layout().num_params());
  // The padding token (1) inside a document: no gradient for its word or its position, and the count goes on after it.
  rig.backward(pack_classes({{{5, 6, 1, 7}, {}}, {{8}, {}}}), {1, 2}, {}, 2, model::Keep::All, counts);
  const auto& positions =
      counts.rows[static_cast<size_t>(rig.id("roberta.embeddings.position_embeddings.weight"))];
  EXPECT_EQ(positions, (std::map<int64_t, int64_t>{{2, 2}, {3, 1}, {4, 1}}));
  const auto& words = counts.rows[static_cast<size_t>(rig.id("roberta.embeddings.word_embeddings.weight"))];
  EXPECT_EQ(words, (std::map<int64_t, int64_t>{{5, 1}, {6, 1}, {7, 1}, {8, 1}}));
}

TEST(EncoderEmbedding, ADocumentLongerThanTheTableIsRefusedByName) {
  for (const auto& [config, longest] : {std::pair{small_bert(), 80}, {small_roberta(), 78}}) {
    ClassifierRig rig(config, at::kFloat);
    rig.randomise(1, 0.2);
    EXPECT_EQ(config.max_document_tokens(), longest);
    EXPECT_NO_THROW(rig.forward(pack_classes({random_class_document(longest, 40, 0)}, 17)));
    try {
      rig.forward(pack_classes({random_class_document(longest + 1, 40, 0)}, 17));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_NE(std::string(error.what()).find(fmt::format("sample 17 has {} tokens", longest + 1)), std::string::npos)
          << error.what();
    }
  }
}

TEST(EncoderEmbedding, AbsentTokenTypesAreZeros) {
  ClassifierRig rig(small_bert(), at::kFloat);
  rig.randomise(1, 0.2);
  ClassDocument document = random_class_document(12, 48, 0);
  const model::GrainInput without = pack_classes({document});
  document.types.assign(12, 0);
  const model::GrainInput with = pack_classes({document});
  ASSERT_FALSE(without.type_T.defined());
  ASSERT_TRUE(with.type_T.defined());
  EXPECT_TRUE(same_bits(rig.forward(without), rig.forward(with)));
  SumSink a(rig.layout(), at::kFloat), b(rig.layout(), at::kFloat);
  rig.backward(without, {1}, {}, 1, model::Keep::All, a);
  rig.backward(with, {1}, {}, 1, model::Keep::All, b);
  EXPECT_EQ(a.hash(), b.hash());
}

// ---- bits ------------------------------------------------------------------

struct EncoderCase {
  std::string name;
  model::EncoderConfig config;
  at::ScalarType dtype;
  double dropout;
};

class EncoderBits : public ::testing::TestWithParam<EncoderCase> {
 protected:
  EncoderBits()
      : rig_(GetParam().config, GetParam().dtype,
             {.hidden_dropout = GetParam().dropout, .attention_dropout = GetParam().dropout, .seed = 5}) {
    rig_.randomise(3, 0.3);
    rig_.head().dropout = GetParam().dropout;
    const int64_t vocab = GetParam().config.vocab_size, types = GetParam().config.type_vocab_size;
    documents_ = {random_class_document(37, vocab, 0, types), random_class_document(5, vocab, 1, types),
                  random_class_document(70, vocab, 2, types)};
    grain_ = pack_classes(documents_);
  }
  at::ScalarType stream() const { return GetParam().dtype == at::kDouble ? at::kDouble : at::kFloat; }

  ClassifierRig rig_;
  std::vector<ClassDocument> documents_;
  model::GrainInput grain_;
};

TEST_P(EncoderBits, RecomputedLayersAreTheKeptOnes) {
  SumSink kept(rig_.layout(), at::kFloat), recomputed(rig_.layout(), at::kFloat);
  const auto a = rig_.backward(grain_, kThreeLabels, {}, 3, model::Keep::All, kept);
  const auto b = rig_.backward(grain_, kThreeLabels, {}, 3, model::Keep::InputOnly, recomputed);
  EXPECT_TRUE(same_bits(a.logits_DC, b.logits_DC));
  for (tensor::ParamId id = 0; id < rig_.layout().num_params(); ++id)
    EXPECT_TRUE(same_bits(kept.grad(id), recomputed.grad(id))) << rig_.layout().spec(id).name;
}

TEST_P(EncoderBits, DoNotDependOnAlignmentAndKeepNothingChangesNothing) {
  const at::Tensor x_TH = random_tensor({grain_.num_tokens(), GetParam().config.hidden_size}, stream(), 50, 1);
  const at::Tensor dx_TH = random_tensor(x_TH.sizes(), stream(), 51, 0.1);
  const auto run = [&](at::Tensor x, at::Tensor dx) {
    SumSink sink(rig_.layout(), at::kFloat);
    model::EncoderSaved saved;
    const at::Tensor y = rig_.encoder().layer_forward(rig_.store(), 1, std::move(x), grain_, model::Keep::All, saved);
    rig_.encoder().layer_backward(rig_.store(), 1, dx, grain_, std::move(saved), sink);
    return std::tuple{y, dx, sink.hash()};
  };
  const auto [y, dx, hash] = run(x_TH.clone(), dx_TH.clone());
  const auto [y2, dx2, hash2] = run(shifted_copy(x_TH), shifted_copy(dx_TH));
  EXPECT_TRUE(same_bits(y, y2));
  EXPECT_TRUE(same_bits(dx, dx2));
  EXPECT_EQ(hash, hash2);
  model::EncoderSaved unused;
  EXPECT_TRUE(same_bits(
      rig_.encoder().layer_forward(rig_.store(), 1, x_TH.clone(), grain_, model::Keep::Nothing, unused), y));
  EXPECT_FALSE(unused.x_TH.defined());
}

TEST_P(EncoderBits, SavedBytesAreTheOnesThePlanIsTold) {
  const at::Tensor x_TH = random_tensor({grain_.num_tokens(), GetParam().config.hidden_size}, stream(), 50, 1);
  for (const model::Keep keep : {model::Keep::All, model::Keep::InputOnly, model::Keep::Nothing}) {
    model::EncoderSaved saved;
    rig_.encoder().layer_forward(rig_.store(), 1, x_TH.clone(), grain_, keep, saved);
    int64_t bytes = 0;
    for (const at::Tensor* x :
         {&saved.x_TH, &saved.q_TND, &saved.k_TND, &saved.v_TND, &saved.attention.o_TND, &saved.attention.lse_NT,
          &saved.sum1_TH, &saved.sum2_TH, &saved.moments1.mean_R, &saved.moments1.rstd_R, &saved.moments2.mean_R,
          &saved.moments2.rstd_R, &saved.h_TM})
      if (x->defined()) bytes += static_cast<int64_t>(x->nbytes());
    EXPECT_EQ(bytes, rig_.encoder().saved_bytes_per_layer(grain_.num_tokens(), keep));
  }
}

/// What is computed row by row or document by document cannot depend on the grain; products may, by their shape. Grains
/// are a function of the data alone, so that is allowed; the difference must be one of rounding.
TEST_P(EncoderBits, AnotherGrainChangesNoMoreThanRounding) {
  SumSink packed(rig_.layout(), at::kDouble), apart(rig_.layout(), at::kDouble);
  const auto together = rig_.backward(grain_, kThreeLabels, {}, 3, model::Keep::All, packed);
  const double unit = GetParam().dtype == at::kBFloat16 ? 0x1p-9 : GetParam().dtype == at::kFloat ? 0x1p-24 : 0x1p-53;
  int different = 0;
  for (size_t doc = 0; doc < documents_.size(); ++doc) {
    const auto alone =
        rig_.backward(pack_classes({documents_[doc]}, doc), {kThreeLabels[doc]}, {}, 3, model::Keep::All, apart);
    const at::Tensor part = together.logits_DC.narrow(0, static_cast<int64_t>(doc), 1).contiguous();
    different += same_bits(part, alone.logits_DC) ? 0 : 1;
    // Two layers of six products, each a few roundings of the logits' scale.
    const double distance = (part - alone.logits_DC).abs().max().item<double>();
    EXPECT_LE(distance, 64 * unit * std::max(part.abs().max().item<double>(), 1.0)) << "document " << doc;
  }
  // Gradients are sums over both documents and tokens: a norm is steadier than an element.
  EXPECT_NEAR(apart.total_norm(), packed.total_norm(), 16 * unit * packed.total_norm());
  RecordProperty("documents_whose_logits_changed", different);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderBits,
                         ::testing::Values(EncoderCase{"bert_bf16", small_bert(), at::kBFloat16, 0.1},
                                           EncoderCase{"bert_f32", small_bert(), at::kFloat, 0},
                                           EncoderCase{"bert_f32_dropout", small_bert(), at::kFloat, 0.1},
                                           EncoderCase{"roberta_f32", small_roberta(), at::kFloat, 0.1},
                                           EncoderCase{"roberta_bf16", small_roberta(), at::kBFloat16, 0},
                                           EncoderCase{"distilbert_bf16", small_distilbert(), at::kBFloat16, 0.1},
                                           EncoderCase{"distilbert_f64", small_distilbert(), at::kDouble, 0.1}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::testing
