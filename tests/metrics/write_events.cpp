// lockstep_write_events FOLDER: event files of a run that stopped after update 300 and was resumed after 200, for
// scripts/check-tensorboard, which knows what must be read from them.
#include "lockstep/base/error.h"
#include "lockstep/metrics/tensorboard.h"

#include <cstdio>
#include <vector>

namespace {

using namespace lockstep;

void log_updates(metrics::EventFile& file, int64_t first, int64_t last, double numerator) {
  for (int64_t step = first; step <= last; ++step) {
    const auto update = static_cast<double>(step);
    const std::vector<metrics::Scalar> training = {
        {"loss", numerator / update}, {"learning_rate", 1e-5 * (1 - update / 400)}, {"epoch", update / 100}};
    file.scalars(step, training);
    if (step % 100 != 0) continue;
    const std::vector<metrics::Scalar> evaluation = {{"eval_accuracy", 1 - numerator / update}, {"test_f1", update / 1000}};
    file.scalars(step, evaluation);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: lockstep_write_events FOLDER\n");
    return 2;
  }
  try {
    metrics::EventFile first(argv[1]);
    first.text("args", "{\"learning_rate\": 1e-05}");
    first.text("model_config", "{\"model_type\": \"bert\"}");
    log_updates(first, 1, 300, 2);
    metrics::EventFile second(argv[1], 200);
    log_updates(second, 201, 400, 3);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep_write_events: error: {}\n", error.what());
    return error.exit_code();
  }
}
