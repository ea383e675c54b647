#include "lockstep/checkpoint/checkpoint_writer.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/publish.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace lockstep::checkpoint {
struct CheckpointWriter::Impl {
  enum class Phase { Idle, Reading, Syncing, Written };

  /// A save from begin() to its end.
  struct Save {
    CheckpointJob job;
    fs::path partial;
    Clock::time_point start = Clock::now();
    std::atomic<int64_t> written = 0;
    RankReport report;
    double read_s = 0, disk_s = 0, stall_s = 0;
    bool let_go = false;  ///< wait() has said that the live state may change
  };

  using Task = std::function<void(const std::stop_token&)>;

  Impl(comm::Communicator& communicator, fs::path folder, Disk& the_disk)
      : comm(communicator), output(std::move(folder)), disk(the_disk),
        thread([this](const std::stop_token& stop) { run_tasks(stop); }) {}

  /// Until stopped and nothing is left to do.
  void run_tasks(const std::stop_token& stop) {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, stop, [&] { return !tasks.empty(); });
        if (tasks.empty()) return;
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      task(stop);
    }
  }

  void push(Task task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }

  void enter(Phase next) {
    const std::lock_guard lock(mutex);
    phase = next;
    changed.notify_all();
  }

  /// In the writer's thread.
  void write_share(const std::stop_token& stop) {
    RankReport report{.rank = comm.rank(), .error = {}, .error_kind = {}, .files = {}};
    try {
      make_folder(disk, save->partial);
      report.files = write_rank_files(
          save->job, save->partial, {comm.rank(), comm.size()}, disk, stop,
          [&] {
            save->read_s = seconds_since(save->start);
            enter(Phase::Syncing);
          },
          save->written);
    } catch (const Error& error) {
      report.error = error.what();
      report.error_kind = name(error.kind());
    } catch (const std::exception& error) {
      report.error = error.what();
      report.error_kind = name(ErrorKind::Internal);
    }
    save->report = std::move(report);
    save->disk_s = seconds_since(save->start) - save->read_s;
    enter(Phase::Written);
  }

  /// Until the thread has come so far.
  void await(Phase wanted) {
    std::unique_lock lock(mutex);
    if (changed.wait_until(lock, Deadline::in(comm.timeout()).when(), [&] { return phase >= wanted; })) return;
    throw Error::timeout("{}: rank {} has not written its share within {} s ({:.1f} MB so far). Does the disk of {} hang?",
                         checkpoint_name(save->job.update), comm.rank(), comm.timeout().count() / 1000,
                         1e-6 * static_cast<double>(save->written), output.string());
  }

  SaveReport publish_save() {
    await(Phase::Written);
    const Publication done = publish(comm, disk, output, save->job, save->report);
    if (done.replaced) remove_in_thread(*done.replaced);
    return {.folder = done.folder, .update = save->job.update, .num_bytes = done.num_bytes, .read_s = save->read_s,
            .disk_s = save->disk_s, .stall_s = 0};
  }

  WaitResult wait(bool until_published) {
    WaitResult result;
    if (!save) return result;
    const Clock::time_point start = Clock::now();
    if (!until_published && !save->let_go) {
      await(Phase::Syncing);
      save->let_go = true;
      result.stall_s = seconds_since(start);
      save->stall_s += result.stall_s;
      return result;
    }
    try {
      result.published = publish_save();
    } catch (...) {
      if (phase_now() == Phase::Written) save.reset();
      throw;
    }
    result.stall_s = seconds_since(start);
    result.published->stall_s = save->stall_s + result.stall_s;
    save.reset();
    return result;
  }

  Phase phase_now() {
    const std::lock_guard lock(mutex);
    return phase;
  }

  void remove_in_thread(const fs::path& aside) {
    push([this, aside](const std::stop_token&) {
      try {
        remove_tree(disk, aside);
      } catch (const Error& error) {
        log::warn("checkpoint", "an old checkpoint could not be deleted: {}", error.what());
      }
    });
  }

  comm::Communicator& comm;
  const fs::path output;
  Disk& disk;
  std::optional<Save> save;  ///< its report and times belong to the thread until phase is Written
  std::mutex mutex;          ///< guards what follows
  std::condition_variable_any changed;
  std::deque<Task> tasks;
  Phase phase = Phase::Idle;
  std::jthread thread;
};

CheckpointWriter::CheckpointWriter(comm::Communicator& comm, fs::path output, Disk& disk) {
  require_shared_folder(comm, disk, output);
  impl_ = std::make_unique<Impl>(comm, std::move(output), disk);
}

CheckpointWriter::~CheckpointWriter() {
  impl_->thread.request_stop();
  impl_->thread.join();
  if (!impl_->save || impl_->comm.rank() != 0) return;
  try {
    remove_tree(impl_->disk, impl_->save->partial);
  } catch (const std::exception&) {
    // The next run clears it away.
  }
}

void CheckpointWriter::begin(CheckpointJob job) {
  LS_CHECK(!saving(), "update {}: begin() while {} is being saved", job.update,
           checkpoint_name(impl_->save->job.update));
  impl_->save.emplace();
  impl_->save->partial = impl_->output / partial_name(job.update);
  impl_->save->job = std::move(job);
  impl_->enter(Impl::Phase::Reading);
  impl_->push([impl = impl_.get()](const std::stop_token& stop) { impl->write_share(stop); });
}

bool CheckpointWriter::saving() const { return impl_->save.has_value(); }

WaitResult CheckpointWriter::wait() { return impl_->wait(false); }

WaitResult CheckpointWriter::finish() { return impl_->wait(true); }

void CheckpointWriter::remove(const std::vector<fs::path>& checkpoints) {
  for (const fs::path& checkpoint : checkpoints) {
    try {
      impl_->remove_in_thread(put_aside(impl_->disk, checkpoint));
    } catch (const Error& error) {
      log::warn("checkpoint", "an old checkpoint could not be removed: {}", error.what());
    }
  }
}

}  // namespace lockstep::checkpoint
