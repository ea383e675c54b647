#pragma once

#include "data_pipeline/loading.h"
#include "lockstep/data/classify.h"

#include <fmt/ranges.h>

#include <utility>

/// What the tests of classification data share.
namespace lockstep::data::testing {

/// Adds [CLS] and [SEP]; names a limit of 512 tokens.
inline const text::Tokenizer& bert() {
  static const text::Tokenizer tokenizer = text::Tokenizer::from_folder(LOCKSTEP_UNPACKED_TOKENIZERS "/bert-uncased");
  return tokenizer;
}

/// A folder with files that exist as long as it does.
class FolderOf {
 public:
  using Files = std::vector<std::pair<std::string, std::string>>;
  FolderOf(std::initializer_list<std::pair<std::string, std::string>> files) : FolderOf(Files(files)) {}
  explicit FolderOf(const Files& files) : folder_("classify-data") {
    for (const auto& [name, content] : files) {
      fs::create_directories((folder_.path() / name).parent_path());
      write_file_atomically(folder_.path() / name, content);
    }
  }
  std::string path() const { return folder_.path().string(); }

 private:
  TempFolder folder_;
};

struct LoadClassify {
  ClassifyDataOptions options = {};
  ClassifyNeeds needs = {};
  const text::Tokenizer* tokenizer = &bert();
  int num_threads = 2;
};

inline ClassifyDataset load(LoadClassify with) {
  if (with.needs.vocab_size == 0) with.needs.vocab_size = 1'000'000;
  ThreadTeam team(with.num_threads);
  return load_classify_dataset(with.options, with.needs, *with.tokenizer, team);
}

inline ClassifyDataset load(const FolderOf& folder, LoadClassify with = {}) {
  with.options.dataset_name = folder.path();
  return load(std::move(with));
}

}  // namespace lockstep::data::testing
