#include "lockstep/options/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace lockstep::options {
namespace {

struct FormerName {
  std::string_view key;
  std::string_view advice;  ///< "{0}" stands for the prefix of a key
};

// Names that older trl, transformers and other trainers have; each advice names a flag that exists today.
constexpr std::array kFormerNames = {
    FormerName{"evaluation_strategy", "It is called {0}eval_strategy now."},
    FormerName{"warmup_ratio", "It is part of {0}warmup_steps now: a value below 1 is a share of all updates."},
    FormerName{"max_seq_length", "It is called {0}max_length now."},
    FormerName{"torch_dtype", "It is called {0}dtype now."},
    FormerName{"num_epochs", "It is called {0}num_train_epochs."},
    FormerName{"epochs", "It is called {0}num_train_epochs."},
    FormerName{"lr", "It is called {0}learning_rate."},
    FormerName{"batch_size", "Use {0}per_device_train_batch_size or {0}global_batch_size."},
    FormerName{"per_gpu_train_batch_size", "It is called {0}per_device_train_batch_size now."},
    FormerName{"group_by_length", "Leave it out: samples are packed by length into grains."},
    FormerName{"no_cuda", "It is called {0}use_cpu now."},
    FormerName{"save_safetensors", "Leave it out: weights are always saved as safetensors."},
    FormerName{"model", "It is called {0}model_name_or_path."},
    FormerName{"dataset", "It is called {0}dataset_name."},
    FormerName{"tokenizer_name", "Leave it out: the tokenizer is read from {0}model_name_or_path."},
    FormerName{"bf16_full", "Use {0}bf16."},
    FormerName{"max_prompt_length", "Leave it out: {0}max_length limits the whole sample."},
};

/// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

/// Lower is nearer; a key that contains the other whole is near however long the rest is.
size_t distance(std::string_view written, std::string_view key) {
  const size_t edits = edit_distance(written, key);
  if (written.size() >= 4 && key.find(written) != std::string_view::npos) return std::min<size_t>(edits, 2);
  return edits;
}

}  // namespace

std::string nearest_word(std::span<const std::string_view> words, std::string_view written) {
  size_t least = std::max<size_t>(1, written.size() / 3) + 1;
  std::string_view nearest;
  for (const std::string_view word : words) {
    const size_t edits = edit_distance(written, word);
    if (edits >= least) continue;
    least = edits;
    nearest = word;
  }
  return std::string(nearest);
}

Words nearest_keys(const Fields& fields, std::string_view key) {
  const std::string written = canonical_key(key);
  const size_t limit = std::max<size_t>(2, written.size() / 3);
  std::vector<std::pair<size_t, const Field*>> near;
  for (const Field& field : fields) {
    const size_t edits = distance(written, field.spec.key);
    if (!field.spec.is_hidden && edits <= limit) near.emplace_back(edits, &field);
  }
  // Equal distance: options that work first, then the order of the help page.
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->spec.kind) < std::pair(b.first, b.second->spec.kind);
  });
  Words keys;
  for (const auto& [edits, field] : near) {
    if (keys.size() == 3 || edits > near.front().first + 1) break;
    keys.push_back(field->spec.key);
  }
  return keys;
}

std::string former_name_advice(std::string_view key, std::string_view prefix) {
  const std::string written = canonical_key(key);
  for (const FormerName& former : kFormerNames) {
    if (former.key == written) return fmt::format(fmt::runtime(former.advice), prefix);
  }
  return {};
}

std::string unknown_key_advice(const Fields& fields, std::string_view key, std::string_view prefix) {
  if (std::string advice = former_name_advice(key, prefix); !advice.empty()) return advice;
  Words keys = nearest_keys(fields, key);
  if (keys.empty()) return "--help lists all flags.";
  for (std::string& name : keys) name.insert(0, prefix);
  return fmt::format("Did you mean {}?", fmt::join(keys, " or "));
}

}  // namespace lockstep::options
