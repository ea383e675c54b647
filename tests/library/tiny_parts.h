#pragma once

#include <lockstep/lockstep.h>

#include "lockstep/base/files.h"

#include <string>
#include <vector>

/// A tiny bert and a small pair task, ready for a Trainer.
namespace lockstep::library_test {

inline const fs::path kTestData = LOCKSTEP_TEST_DATA;
inline const std::string kTinyBert = kTestData / "models" / "tiny" / "bert";
inline const std::string kPairs = kTestData / "solution-pairs";

/// Cut to 40 tokens.
Dataset tokenized(const Dataset& rows);
/// The first rows of a split of solution-pairs, tokenized.
Dataset pair_rows(const std::string& split, size_t count);
/// A new head of two classes.
SequenceClassifier tiny_classifier();
/// 24 training rows, 10 to evaluate on, updates of 8, 1 epoch, nothing saved in between.
TrainerParts tiny_parts(const fs::path& output);

fs::path write_text(const fs::path& path, const std::string& text);

}  // namespace lockstep::library_test
