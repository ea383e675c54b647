#include "lockstep/recipes/predictions_file.h"

#include "lockstep/base/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

namespace lockstep::recipes {
namespace {

/// Without links, as far as the path exists.
fs::path real_path(const fs::path& path) {
  std::error_code problem;
  fs::path real = fs::weakly_canonical(fs::absolute(path, problem), problem);
  return problem ? path : real;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path base = real_path(folder);
  return std::mismatch(base.begin(), base.end(), path.begin(), path.end()).first == base.end();
}

/// An empty file, or one that begins with a prediction.
bool holds_predictions(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!file || file.peek() == std::ifstream::traits_type::eof()) return static_cast<bool>(file) || file.eof();
  std::getline(file, line);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  return json.is_object() && json.contains("row") && json.contains("scores");
}

/// In the output folder the run has names of its own, for checkpoints too.
std::optional<std::string> name_problem(const fs::path& path, const fs::path& output) {
  if (!lies_in(path, output)) return std::nullopt;
  const std::string name = path.filename();
  const bool is_free = path.parent_path() == real_path(output) && path.extension() == ".jsonl" && !name.starts_with(".") &&
                       !name.starts_with("metrics.");
  if (is_free) return std::nullopt;
  return fmt::format("is a place where the run writes its own files. In {} give it a name that ends in .jsonl, as predictions.jsonl",
                     output.string());
}

std::optional<std::string> input_problem(const fs::path& path, const ClassifyOptions& options) {
  for (const auto* input : {&options.data.train_file, &options.data.validation_file, &options.data.test_file}) {
    if (*input && real_path(**input) == path) return "is read by the run. Give another name";
  }
  const auto& model = options.model.model_name_or_path;
  if (model && lies_in(path, *model)) return fmt::format("lies in the model's folder {}. Give another place", *model);
  return std::nullopt;
}

std::optional<std::string> content_problem(const fs::path& path) {
  std::error_code problem;
  const fs::file_status status = fs::status(path, problem);
  if (!fs::exists(status)) {
    if (fs::is_directory(path.parent_path(), problem)) return std::nullopt;
    return fmt::format("there is no folder {}. Make it, or give another place", path.parent_path().string());
  }
  if (fs::is_directory(status)) return "is a folder. Give the name of a file";
  // They are put in place whole, under this name: a device or pipe would be replaced by a file.
  if (!fs::is_regular_file(status)) return "is a device or a pipe. Give the name of a file";
  if (holds_predictions(path)) return std::nullopt;
  return "is there already and holds no predictions. Give another name with --predictions";
}

}  // namespace

std::string predictions_path(const ClassifyOptions& options) {
  return options.output.predictions.value_or((fs::path(options.train.output_dir.value_or("trainer_output")) / "predictions.jsonl").string());
}

std::optional<std::string> predictions_problem(const ClassifyOptions& options) {
  const fs::path named = predictions_path(options);
  if (!options.output.predictions) {
    std::error_code ignored;
    return fs::exists(named, ignored) ? content_problem(real_path(named)) : std::nullopt;
  }
  // /dev/stdout may lead to a file, which would be replaced under whoever writes to it.
  if (lies_in(fs::absolute(named).lexically_normal(), "/dev")) return "is a device or a pipe. Give the name of a file";
  const fs::path path = real_path(named);
  if (auto problem = input_problem(path, options)) return problem;
  if (auto problem = name_problem(path, options.train.output_dir.value_or("trainer_output"))) return problem;
  return content_problem(path);
}

}  // namespace lockstep::recipes
