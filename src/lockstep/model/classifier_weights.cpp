#include "lockstep/model/classifier_weights.h"

#include "lockstep/base/error.h"
#include "lockstep/model/init.h"
#include "lockstep/model/weight_checks.h"

#include <fmt/ranges.h>

#include <optional>
#include <set>

namespace lockstep::model {
namespace {

/// "x.LayerNorm.weight" as TensorFlow's converter wrote it, "x.LayerNorm.gamma"; empty for other names.
std::string old_norm_name(const std::string& name) {
  for (const auto& [now, before] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
    if (name.ends_with(now)) return name.substr(0, name.size() - std::string_view(now).size()) + before;
  return "";
}

/// The name under which the folder has the parameter, or "".
std::string stored_name(const std::string& name, const std::string& prefix, const tensor::WeightFiles& files) {
  const std::string bare = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const std::string& candidate : {name, old_norm_name(name), bare, old_norm_name(bare)})
    if (!candidate.empty() && files.contains(candidate)) return candidate;
  return "";
}

bool belongs_to_head(const std::string& name, const std::string& prefix) {
  return !name.starts_with(prefix) || name.starts_with(prefix + "pooler.");
}

bool follows_from_config(const std::string& name) {
  return name.ends_with("position_ids") || name.ends_with("rotary_emb.inv_freq");
}

/// Stored name of every parameter; empty: to be made new.
std::vector<std::string> match_names(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                                     const ClassifierWeightsOptions& options) {
  std::vector<std::string> stored, missing;
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    const tensor::ParamSpec& spec = layout.spec(id);
    std::string name = stored_name(spec.name, options.prefix, files);
    const bool head = belongs_to_head(spec.name, options.prefix);
    if (name.empty() && !head) missing.push_back(spec.name);
    if (!name.empty() && head && files.tensor(name).sizes() != at::IntArrayRef(spec.shape)) {
      if (!options.ignore_mismatched_sizes)
        throw Error::data("{}: {} has shape [{}], the model for this task has [{}]. Was it trained for another number of "
                          "classes? Give --ignore_mismatched_sizes to begin with a new head.",
                          files.file_of(name), name, fmt::join(files.tensor(name).sizes(), ", "),
                          fmt::join(spec.shape, ", "));
      name.clear();
    }
    stored.push_back(std::move(name));
  }
  if (!missing.empty())
    throw Error::data("{} lacks {} of {} tensors: {}. It must hold the whole base model that config.json describes; "
                      "fetch it again.",
                      files.folder().string(), missing.size(), layout.num_params(), detail::first_few(missing));
  return stored;
}

std::vector<std::string> unused_names(const tensor::WeightFiles& files, const std::vector<std::string>& used) {
  const std::set<std::string> taken(used.begin(), used.end());
  std::vector<std::string> out;
  for (const std::string& name : files.names())
    if (!taken.contains(name) && !follows_from_config(name)) out.push_back(fmt::format("{} ({})", name, files.file_of(name)));
  return out;
}

}  // namespace

ClassifierWeights load_classifier_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                                          const ClassifierWeightsOptions& options,
                                          const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                                          ThreadTeam* team) {
  const std::vector<std::string> stored = match_names(layout, files, options);
  ClassifierWeights out{at::kFloat, {}, unused_names(files, stored)};
  std::optional<at::ScalarType> dtype;
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    const std::string& name = stored[static_cast<size_t>(id)];
    if (name.empty()) {
      out.made_new.push_back(id);
      continue;
    }
    const at::Tensor values = files.tensor(name);
    detail::check_form(layout.spec(id), files, name, values);
    dtype = detail::common_dtype(dtype, values.scalar_type());
  }
  out.stored_dtype = dtype.value_or(at::kFloat);

  const auto read_one = [&](size_t item, int) {
    const auto id = static_cast<tensor::ParamId>(item);
    if (stored[item].empty()) return read(id, new_parameter(layout.spec(id), options.initializer_range, options.seed));
    const at::Tensor values = files.tensor(stored[item]);
    detail::check_finite(files, stored[item], values);
    read(id, values);
  };
  if (team != nullptr) {
    team->run(stored.size(), read_one);
  } else {
    for (size_t item = 0; item < stored.size(); ++item) read_one(item, 0);
  }
  return out;
}

}  // namespace lockstep::model
