#include "lockstep/base/error.h"
#include "lockstep/model/families.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace lockstep::model {
namespace {

constexpr int64_t kMaxTrainedLength = INT32_MAX;

void need(const JsonFields& rope, const std::string& type, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (!rope.has(key)) throw Error::data("{}: rope scaling {} needs it. Add it.", rope.where(key), type);
}

std::vector<double> factors(const JsonFields& rope, const std::string& key, const DecoderConfig& config) {
  std::vector<double> out = rope.reals(key);
  const int64_t wanted = (config.rotary_dim > 0 ? config.rotary_dim : config.head_dim) / 2;
  if (static_cast<int64_t>(out.size()) != wanted)
    throw Error::data("{} has {} numbers, and half the rotated width of a head is {}. Correct it.", rope.where(key), out.size(),
                      wanted);
  for (const double factor : out)
    if (!(factor > 0)) throw Error::data("{}: every factor must be above 0. Correct it.", rope.where(key));
  return out;
}

void read_llama3(const JsonFields& rope, RopeScaling& scaling) {
  need(rope, scaling.type, {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  scaling.low_freq_factor = rope.positive("low_freq_factor", 1);
  scaling.high_freq_factor = rope.positive("high_freq_factor", 4);
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    throw Error::data("{} must be above low_freq_factor = {}. Correct one of them.", rope.where("high_freq_factor"),
                      scaling.low_freq_factor);
}

void read_yarn(const JsonFields& rope, RopeScaling& scaling) {
  need(rope, scaling.type, {"factor"});
  scaling.beta_fast = rope.positive("beta_fast", 32);
  scaling.beta_slow = rope.positive("beta_slow", 1);
  scaling.mscale = rope.real("mscale", 0);
  scaling.mscale_all_dim = rope.real("mscale_all_dim", 0);
  scaling.truncate = rope.boolean("truncate", true);
  if (rope.has("attention_factor")) scaling.attention_factor = rope.positive("attention_factor", 1);
}

void read_longrope(const JsonFields& rope, const JsonFields& fields, const DecoderConfig& config, RopeScaling& scaling) {
  need(rope, scaling.type, {"short_factor", "long_factor"});
  scaling.short_factor = factors(rope, "short_factor", config);
  scaling.long_factor = factors(rope, "long_factor", config);
  // Phi-3 keeps the trained length at the top, and the factor follows from the two lengths.
  const JsonFields& owner = rope.has("original_max_position_embeddings") ? rope : fields;
  need(owner, scaling.type, {"original_max_position_embeddings"});
  scaling.original_max_position_embeddings = owner.size("original_max_position_embeddings", 1, kMaxTrainedLength);
  scaling.factor = static_cast<double>(config.max_position_embeddings) /
                   static_cast<double>(scaling.original_max_position_embeddings);
  if (rope.has("attention_factor")) scaling.attention_factor = rope.positive("attention_factor", 1);
}

RopeScaling read_scaling(const JsonFields& rope, const JsonFields& fields, const DecoderConfig& config) {
  RopeScaling scaling;
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  scaling.type = rope.text(type_key, "default");
  if (scaling.type == "su") scaling.type = "longrope";  // the name it had in Phi-3's first files
  if (scaling.type == "default") return scaling;
  const std::string& type = scaling.type;
  if (type != "linear" && type != "dynamic" && type != "llama3" && type != "yarn" && type != "longrope")
    throw Error::data("{}: this rope scaling is not there. There are: default, linear, dynamic, yarn, longrope, llama3.",
                      rope.where(type_key));
  scaling.original_max_position_embeddings =
      rope.size("original_max_position_embeddings", config.max_position_embeddings, kMaxTrainedLength);
  scaling.factor = rope.positive("factor", 1);
  if (scaling.factor < 1) throw Error::data("{} must be at least 1. Correct it.", rope.where("factor"));
  if (type == "llama3") read_llama3(rope, scaling);
  if (type == "yarn") read_yarn(rope, scaling);
  if (type == "longrope") read_longrope(rope, fields, config, scaling);
  if (type == "linear" || type == "dynamic") need(rope, type, {"factor"});
  return scaling;
}

// ---- frequencies -----------------------------------------------------------

using Frequencies = std::vector<double>;

Frequencies plain(double theta, int64_t width) {
  Frequencies out(static_cast<size_t>(width / 2));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  return out;
}

/// Long wavelengths are divided by `factor`, short ones kept, those between blended.
void scale_llama3(const RopeScaling& rope, Frequencies& frequencies) {
  const auto old_context = static_cast<double>(rope.original_max_position_embeddings);
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > old_context / rope.low_freq_factor) {
      frequency /= rope.factor;
    } else if (wavelength >= old_context / rope.high_freq_factor) {
      const double smooth =
          (old_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
}

/// The index of the frequency that makes `turns` turns in the trained length.
double yarn_index(double turns, double trained, double theta, double width) {
  return width * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

/// YaRN (Peng et al., 2023): fast frequencies kept, slow ones divided by `factor`, a ramp between.
void scale_yarn(const RopeScaling& rope, double theta, Frequencies& frequencies) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const auto width = 2 * static_cast<double>(frequencies.size());
  double low = yarn_index(rope.beta_fast, trained, theta, width), high = yarn_index(rope.beta_slow, trained, theta, width);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * slow + frequencies[i] * (1 - slow);
  }
}

double attention_scaling(const RopeScaling& rope) {
  if (rope.type != "yarn" && rope.type != "longrope") return 1;
  if (rope.attention_factor > 0) return rope.attention_factor;
  if (rope.type == "yarn") {
    if (rope.mscale != 0 && rope.mscale_all_dim != 0)
      return yarn_magnitude(rope.factor, rope.mscale) / yarn_magnitude(rope.factor, rope.mscale_all_dim);
    return yarn_magnitude(rope.factor, 1);
  }
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  return rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(trained));
}

}  // namespace

void detail::read_rope(const JsonFields& fields, double absent_theta, DecoderConfig& config) {
  JsonFields rope = fields.object(fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (rope.has("full_attention")) {  // transformers 5 has one for each kind of layer
    const JsonFields local = rope.object("sliding_attention");
    config.local_rope_theta = local.positive("rope_theta", 10000);
    if (local.text("rope_type", "default") != "default")
      throw Error::data("{}: there is no scaling for layers with a window. Correct it.", local.where("rope_type"));
    rope = rope.object("full_attention");
  }
  config.rope_theta = rope.positive("rope_theta", fields.positive("rope_theta", absent_theta));
  const double partial = rope.real("partial_rotary_factor", fields.real("partial_rotary_factor", 1));
  if (partial != 1) {
    const JsonFields& owner = rope.has("partial_rotary_factor") ? rope : fields;
    if (config.model_type != "phi3")
      throw Error::data("{}: rotating a part of a head is there for phi3 alone. Use a model that turns whole heads.",
                        owner.where("partial_rotary_factor"));
    config.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * partial);
    if (!(partial > 0 && partial < 1) || config.rotary_dim < 2 || config.rotary_dim % 2 != 0)
      throw Error::data("{}: of heads {} wide it must leave an even number of elements to turn. Correct it.",
                        owner.where("partial_rotary_factor"), config.head_dim);
  }
  config.rope = read_scaling(rope, fields, config);
}

RopeFrequencies rope_frequencies(const DecoderConfig& config, bool local, int64_t length) {
  const int64_t width = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
  if (local && config.local_rope_theta > 0) return {plain(config.local_rope_theta, width), 1};
  const RopeScaling& rope = config.rope;
  double theta = config.rope_theta;
  if (rope.type == "dynamic") {
    const auto trained = static_cast<double>(config.max_position_embeddings);
    const double seen = std::max(static_cast<double>(length), trained);
    const auto d = static_cast<double>(width);
    theta *= std::pow(rope.factor * seen / trained - (rope.factor - 1), d / (d - 2));
  }
  RopeFrequencies out{plain(theta, width), attention_scaling(rope)};
  if (rope.type == "linear")
    for (double& frequency : out.inverse) frequency /= rope.factor;
  if (rope.type == "llama3") scale_llama3(rope, out.inverse);
  if (rope.type == "yarn") scale_yarn(rope, theta, out.inverse);
  if (rope.type == "longrope") {
    const bool is_long = length > rope.original_max_position_embeddings;
    for (size_t i = 0; i < out.inverse.size(); ++i) out.inverse[i] /= (is_long ? rope.long_factor : rope.short_factor)[i];
  }
  return out;
}

int64_t rope_stable_length(const DecoderConfig& config) {
  if (config.rope.type == "dynamic") return config.max_position_embeddings;
  if (config.rope.type == "longrope") return config.rope.original_max_position_embeddings;
  return std::numeric_limits<int64_t>::max();
}

std::vector<double> rope_inverse_frequencies(const DecoderConfig& config) { return rope_frequencies(config).inverse; }

}  // namespace lockstep::model
