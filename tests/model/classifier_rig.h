#pragma once

#include "lockstep/loss/classifier.h"
#include "lockstep/model/classifier_weights.h"
#include "lockstep/model/encoder.h"
#include "model/model_rig.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// A whole sequence classifier in one piece for tests: an encoder or a decoder with its head.
namespace lockstep::testing {

/// Token types are all 0 where `types` is empty.
struct ClassDocument {
  std::vector<int32_t> tokens, types;
};
ClassDocument random_class_document(int64_t num_tokens, int64_t vocab_size, uint64_t ordinal, int64_t num_types = 0);
/// Documents are samples first_ordinal, first_ordinal + 1, ...
model::GrainInput pack_classes(const std::vector<ClassDocument>& documents, uint64_t first_ordinal = 0);

class ClassifierRig {
 public:
  ClassifierRig(const model::EncoderConfig& config, at::ScalarType compute_dtype, model::EncoderOptions options = {});
  ClassifierRig(const model::DecoderConfig& config, at::ScalarType compute_dtype);
  ClassifierRig(const ClassifierRig&) = delete;
  ClassifierRig& operator=(const ClassifierRig&) = delete;

  /// Weights of a model folder; returns what was made new and what was not used.
  model::ClassifierWeights load(const std::filesystem::path& folder);
  /// Matrices of size `scale`, norm weights around 1.
  void randomise(uint64_t seed, double scale);
  void set(const std::string& name, const std::function<double(int64_t)>& value_of_element);

  at::Tensor forward(const model::GrainInput& grain) const;
  /// After every layer, the embedding first.
  std::vector<at::Tensor> hidden_states(const model::GrainInput& grain) const;
  /// The head's own dropout counts only in backward() and in loss_with_dropout().
  loss::ClassifierOutput evaluate(const model::GrainInput& grain, const std::vector<float>& labels,
                                  const loss::ClassifierLoss& loss) const;
  double loss_with_dropout(const model::GrainInput& grain, const std::vector<float>& labels,
                           const loss::ClassifierLoss& loss, double divisor) const;
  loss::ClassifierOutput backward(const model::GrainInput& grain, const std::vector<float>& labels,
                                  const loss::ClassifierLoss& loss, double divisor, model::Keep keep,
                                  tensor::GradSink& sink) const;

  const model::Encoder& encoder() const { return *encoder_; }
  const tensor::ParamLayout& layout() const { return layout_; }
  tensor::ParamStore& store() { return store_; }
  const tensor::ParamStore& store() const { return store_; }
  loss::ClassifierHead& head() { return head_; }
  const loss::ClassifierHead& head() const { return head_; }
  tensor::ParamId id(const std::string& name) const;

 private:
  std::string prefix_;
  tensor::ParamLayout layout_;
  tensor::ParamStore store_;
  std::unique_ptr<model::Encoder> encoder_;  ///< one of the two
  std::unique_ptr<model::Decoder> decoder_;
  loss::ClassifierHead head_;
};

}  // namespace lockstep::testing
