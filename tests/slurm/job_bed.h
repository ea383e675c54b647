#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace lockstep::launch {

struct Output {
  int exit_code = -1;
  std::string text;  ///< both streams
};
Output shell(const std::string& line);

/// Looks until `condition` holds; false when `limit` has passed. SLURM tells of nothing by itself.
bool wait_until(Milliseconds limit, const std::function<bool()>& condition);

int count(const std::string& text, const std::string& part);

/// A folder to submit from, with lockstep in $lockstep and in PATH and the workers' programs beside it:
/// - ./hello prints who it is;
/// - ./long writes pid.RANK, until the file `stop` is there or SIGTERM comes, which it tells in term.RANK; usr1.RANK
///   after SIGUSR1;
/// - ./deaf is ./long without an ear for SIGTERM.
class SlurmJobs : public testing::Test {
 protected:
  SlurmJobs();
  ~SlurmJobs() override;

  Output run(const std::string& line) const;
  /// sbatch with two nodes; the job's id. Its output goes to job.out.
  std::string submit(const std::string& options, const std::string& body) const;
  /// The job's output once it is over: no longer in the queue, nor any process of it left.
  std::string await_end(const std::string& job, Milliseconds limit = Milliseconds(20'000)) const;
  /// "COMPLETED 0:0", of a job that is over.
  std::string state_of(const std::string& job) const;
  std::string output() const { return fs::exists(file("job.out")) ? read_file(file("job.out")) : ""; }

  fs::path file(const std::string& name) const { return folder_.path() / name; }
  bool has_all(const std::string& prefix) const;  ///< PREFIX.0 to PREFIX.3
  bool await_workers() const {
    return wait_until(Milliseconds(20'000), [&] { return has_all("pid"); });
  }
  /// Agents and workers of this folder's jobs.
  int num_processes() const;
  bool await_no_process(Milliseconds limit) const {
    return wait_until(limit, [&] { return num_processes() == 0; });
  }
  bool has_token_file() const;

  TempFolder folder_{"slurm-jobs-test"};
};

}  // namespace lockstep::launch
