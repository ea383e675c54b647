#pragma once

#include "lockstep/data/classify.h"
#include "lockstep/model/config.h"
#include "lockstep/model/encoder_config.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/run_basis.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/classify_task.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// What `lockstep classify` reads before the processes meet, and the tasks that come of it.
namespace lockstep::recipes {

struct ClassifyInputs {
  std::variant<model::EncoderConfig, model::DecoderConfig> config;  ///< num_labels as the data has it
  text::Tokenizer tokenizer;
  data::ClassifyDataset dataset;

  std::string architecture() const;
  int64_t num_layers() const;
};

/// Throws what its parts throw.
ClassifyInputs read_classify_inputs(const ClassifyOptions& options, ThreadTeam& team);

/// `training`: with dropout and label smoothing. Keeps a reference to `rows`. `own_loss`: in place of the labels' own.
std::unique_ptr<train::ClassifyTask> make_task(const ClassifyOptions& options, const ClassifyInputs& inputs,
                                               const std::vector<data::LabelledRow>& rows, bool training,
                                               std::shared_ptr<const loss::OwnLoss> own_loss = {});

/// What this classifier has otherwise in config.json than the folder it came from: a JSON object.
std::string config_changes(const ClassifyInputs& inputs);

/// run.json, see run_file.h. `loss_name`: of a loss that is not the labels' own.
std::string run_json(const ParsedClassify& parsed, const ClassifyInputs& inputs, const Batch& batch, const data::Order& order,
                     const RunBasis& basis, const std::optional<std::string>& loss_name = {});

/// Fingerprints of all splits: must agree on all ranks and on resume.
std::string fingerprint(const data::ClassifyDataset& dataset);

/// What the start-up report says of weights that the folder lacks, or has and nothing needs. `continues`: a checkpoint has all.
std::vector<std::string> weight_lines(const train::ClassifyTask& task, int64_t seed, bool continues);

}  // namespace lockstep::recipes
