#include "lockstep/model/config.h"

#include "lockstep/base/error.h"
#include "lockstep/model/config_parts.h"
#include "lockstep/model/families.h"
#include "lockstep/model/label_fields.h"

#include <algorithm>
#include <string_view>

namespace lockstep::model {
namespace {

using detail::Family;

enum class Use { CausalLm, Classification };

bool takes(const Family& family, Use use) { return use == Use::CausalLm || family.classifier; }

/// `member`: Family::architecture or Family::model_type.
std::string nearest_family(std::string_view wanted, std::string_view Family::*member, Use use) {
  std::vector<std::string_view> known;
  for (const Family& family : detail::families())
    if (takes(family, use)) known.push_back(family.*member);
  return detail::nearest_and_all(wanted, known);
}

/// "LlamaForSequenceClassification" of "LlamaForCausalLM".
std::string classifier_of(const Family& family) {
  return std::string(family.architecture.substr(0, family.architecture.find("For"))) + "ForSequenceClassification";
}

bool is_architecture(const std::string& name, const Family& family, Use use) {
  if (!takes(family, use)) return false;
  if (name == family.architecture) return true;
  const std::string bare = std::string(family.architecture.substr(0, family.architecture.find("For"))) + "Model";
  return use == Use::Classification && (name == classifier_of(family) || name == bare);
}

const Family& find_family(const JsonFields& fields, Use use) {
  const std::span<const Family> families = detail::families();
  const std::vector<std::string> architectures = fields.texts("architectures");
  const std::string model_type = fields.text("model_type", "");
  if (!architectures.empty()) {
    const auto by_architecture = [&](const Family& f) { return is_architecture(architectures[0], f, use); };
    const auto it = std::find_if(families.begin(), families.end(), by_architecture);
    if (it == families.end())
      throw Error::data("{}: this architecture is not there. {}", fields.where("architectures"),
                        nearest_family(architectures[0], &Family::architecture, use));
    if (!model_type.empty() && model_type != it->model_type)
      throw Error::data("{} contradicts {}, whose model_type is {}. Correct one of them.", fields.where("model_type"),
                        it->architecture, it->model_type);
    return *it;
  }
  if (model_type.empty())
    throw Error::data("{}, and model_type is absent too: the file does not say which model this is. "
                      "Give the folder of a causal language model.",
                      fields.where("architectures"));
  const auto it = std::find_if(families.begin(), families.end(),
                               [&](const Family& f) { return f.model_type == model_type && takes(f, use); });
  if (it == families.end())
    throw Error::data("{}: this model type is not there. {}", fields.where("model_type"),
                      nearest_family(model_type, &Family::model_type, use));
  return *it;
}

}  // namespace

std::vector<std::string> decoder_families() {
  std::vector<std::string> out;
  for (const Family& family : detail::families()) out.emplace_back(family.model_type);
  return out;
}

DecoderConfig read_decoder_config(const std::filesystem::path& folder) {
  return read_decoder_config(folder, "config.json");
}

DecoderConfig read_decoder_config(const std::filesystem::path& folder, const std::string& file_name) {
  const JsonFields fields = JsonFields::read(folder / file_name);
  return detail::read_family(fields, find_family(fields, Use::CausalLm));
}

DecoderConfig read_decoder_classifier_config(const std::filesystem::path& folder, const std::string& file_name) {
  const JsonFields fields = JsonFields::read(folder / file_name);
  const Family& family = find_family(fields, Use::Classification);
  DecoderConfig config = detail::read_family(fields, family);
  config.architecture = classifier_of(family);
  config.num_labels = read_label_fields(fields).num_labels;
  return config;
}

}  // namespace lockstep::model
