#include "lockstep/library/classifier.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/library/classifier_impl.h"
#include "lockstep/tensor/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace lockstep {
namespace {

void check_classifier_options(const ClassifierOptions& options) {
  const std::string& problem = options.problem_type;
  if (options.num_labels && *options.num_labels < 1) {
    throw Error::usage("num_labels = {}: must be at least 1.", *options.num_labels);
  }
  if (!problem.empty() && problem != "single_label_classification" && problem != "multi_label_classification" &&
      problem != "regression") {
    throw Error::usage("problem_type = '{}': must be one of single_label_classification, multi_label_classification, "
                       "regression.", problem);
  }
  if (options.num_labels == 1 && problem == "single_label_classification") {
    throw Error::usage("num_labels = 1 with problem_type = {}: a classifier needs at least two classes; one label is "
                       "regression.", problem);
  }
  if (options.num_labels && !options.id2label.empty() && std::ssize(options.id2label) != *options.num_labels) {
    throw Error::usage("num_labels = {}, but id2label names {} classes ({}). Name each, or leave one of the two out.",
                       *options.num_labels, options.id2label.size(), fmt::join(options.id2label, ", "));
  }
  const std::set<std::string> distinct(options.id2label.begin(), options.id2label.end());
  if (distinct.size() != options.id2label.size()) {
    throw Error::usage("id2label = {}: two classes have one name. Give each its own.", fmt::join(options.id2label, ", "));
  }
}

/// The classes 0 to `count` - 1, if all that were found are such numbers.
bool are_numbers_below(const std::vector<std::string>& names, int64_t count) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    int64_t value = -1;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), value);
    return problem == std::errc() && end == name.data() + name.size() && value >= 0 && value < count;
  });
}

}  // namespace

SequenceClassifier SequenceClassifier::from_pretrained(const std::string& folder, const ClassifierOptions& options) {
  check_classifier_options(options);
  if (!fs::is_directory(folder)) {
    throw Error::data("SequenceClassifier::from_pretrained({}): there is no such folder. Models are local folders: give the path "
                      "of a downloaded one.", folder);
  }
  auto impl = std::make_shared<Impl>();
  impl->folder = folder;
  impl->options = options;
  tensor::WeightFiles::open(folder);  // for its checks alone
  if (model::is_encoder_config(folder)) {
    const model::EncoderConfig config = model::read_encoder_config(folder);
    impl->vocab_size = config.vocab_size;
    impl->max_positions = config.max_document_tokens();
    impl->architecture = config.architecture;
    impl->config = config;
  } else {
    const model::DecoderConfig config = model::read_decoder_classifier_config(folder);
    impl->vocab_size = config.vocab_size;
    impl->max_positions = config.max_position_embeddings;
    impl->architecture = config.architecture;
    impl->config = config;
  }
  impl->labels = model::read_label_fields(model::JsonFields::read(fs::path(folder) / "config.json"));
  if (data::are_placeholders(impl->labels.names)) impl->labels.names.clear();
  return SequenceClassifier(std::move(impl));
}

const std::string& SequenceClassifier::folder() const { return impl_->folder; }
const std::string& SequenceClassifier::architecture() const { return impl_->architecture; }

std::string wished_problem(const ClassifierOptions& options) {
  if (options.problem_type.empty() && options.num_labels == 1) return "regression";
  return options.problem_type;
}

void fit_labels(data::LabelSet& found, const ClassifierOptions& options, const std::string& column) {
  const bool named = !options.id2label.empty();
  if (!options.num_labels && !named) return;
  const int64_t wanted = options.num_labels.value_or(std::ssize(options.id2label));
  if (found.problem == data::Problem::Regression) {
    if (wanted == found.num_labels) return;
    throw Error::data("the column \"{}\" holds {} target(s) per row, but num_labels = {}. Make them the same.", column,
                      found.num_labels, wanted);
  }
  if (wanted < found.num_labels) {
    throw Error::data("the column \"{}\" holds {} classes ({}), but num_labels = {}. Make room for all, or check the column.",
                      column, found.num_labels, fmt::join(found.names(), ", "), wanted);
  }
  if (named) {
    const bool are_names = std::all_of(found.names().begin(), found.names().end(), [&](const std::string& name) {
      return std::find(options.id2label.begin(), options.id2label.end(), name) != options.id2label.end();
    });
    if (!are_names && !are_numbers_below(found.names(), wanted)) {
      throw Error::data("the column \"{}\" holds the classes {}, but id2label names {}. Name the classes as the rows do.",
                        column, fmt::join(found.names(), ", "), fmt::join(options.id2label, ", "));
    }
    found.set_names(options.id2label);
    found.numbered = options.id2label;
    return;
  }
  if (wanted == found.num_labels) return;
  if (!are_numbers_below(found.names(), wanted)) {
    throw Error::data("the column \"{}\" holds {} classes ({}), but num_labels = {}. Name all of them with id2label.", column,
                      found.num_labels, fmt::join(found.names(), ", "), wanted);
  }
  std::vector<std::string> names;
  for (int64_t i = 0; i < wanted; ++i) names.push_back(std::to_string(i));
  found.set_names(std::move(names));
}

}  // namespace lockstep
