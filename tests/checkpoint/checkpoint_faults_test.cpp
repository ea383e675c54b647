// A save that goes wrong at any point leaves the earlier checkpoints, and nothing that looks like another one.
#include "checkpoint/checkpoint_rig.h"
#include "checkpoint/faulty_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace lockstep::checkpoint {
namespace {

using rig::Rank;
using Fault = FaultyDisk::Fault;

constexpr int kEndedWell = 0, kThrew = 3;

/// In a child process; how it ended.
int in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "child: {}\n", error.what());
      ::_exit(kThrew);
    }
    ::_exit(kEndedWell);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

/// By one rank, without waiting for the device.
void save_alone(const fs::path& output, int64_t update) {
  FaultyDisk disk(Fault::None, 0);
  const auto comm = comm::make_self();
  rig::save(*comm, output, update, at::kFloat, disk);
}

/// What every reader must find after a kill: the checkpoints in sight are whole, and one of `updates` is there.
void expect_only_whole_checkpoints(const fs::path& output, const std::vector<int64_t>& updates) {
  const std::vector<FoundCheckpoint> found = list_checkpoints(output);
  ASSERT_FALSE(found.empty());
  for (const FoundCheckpoint& one : found) {
    EXPECT_EQ(one.problem, "");
    EXPECT_TRUE(problems_of(one.path, Verify::Content).empty()) << one.path;
    EXPECT_NE(std::find(updates.begin(), updates.end(), one.update), updates.end());
  }
  EXPECT_EQ(find_checkpoint(output, "last"), found.back().path);
}

/// Takes checkpoint-2 with `size` ranks and then removes checkpoint-1.
void save_second_and_remove_first(int size, const fs::path& output, Disk& disk) {
  const auto errors = rig::run_ranks(size, [&](comm::Communicator& comm) {
    Rank rank(comm);
    rank.fill(2);
    CheckpointWriter writer(comm, output, disk);
    writer.begin(rank.job(2));
    writer.wait();
    writer.wait();
    if (comm.rank() == 0) writer.remove({output / "checkpoint-1"});
  });
  for (const std::string& error : errors) LS_CHECK(error.empty(), "{}", error);
}

/// Kills at every call in turn. Returns how many there were.
int kill_everywhere(int size, Fault fault, const fs::path& first) {
  for (int call = 1;; ++call) {
    const TempFolder output("checkpoint");
    fs::copy(first, output.path() / "checkpoint-1", fs::copy_options::recursive);
    const int status = in_child([&] {
      FaultyDisk disk(fault, call);
      save_second_and_remove_first(size, output.path(), disk);
    });
    expect_only_whole_checkpoints(output.path(), {1, 2});
    const fs::path last = find_checkpoint(output.path(), "last");
    EXPECT_EQ(rig::num_wrong_in(last, *update_of(last.filename().string())), 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), kEndedWell);
      EXPECT_EQ(rig::entries(output.path()), std::vector<std::string>{"checkpoint-2"});
      return call - 1;
    }
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    // The next run clears what is left and can save.
    save_alone(output.path(), 3);
    for (const std::string& name : rig::entries(output.path())) {
      EXPECT_TRUE(update_of(name).has_value()) << name << " after call " << call;
    }
    if (::testing::Test::HasFailure()) return call;
  }
}

TEST(CheckpointFaults, AKillAtAnyCallLeavesOnlyWholeCheckpoints) {
  const TempFolder output("checkpoint");
  rig::save_with(2, output.path(), 1);
  for (const int size : {1, 2}) {
    const int calls = kill_everywhere(size, Fault::Kill, output.path() / "checkpoint-1");
    EXPECT_GT(calls, 40) << size;
  }
  EXPECT_GT(kill_everywhere(1, Fault::KillHalfway, output.path() / "checkpoint-1"), 40);
}

TEST(CheckpointFaults, AKillWhileOneIsReplacedLeavesTheOldOrTheNew) {
  const TempFolder first("checkpoint");
  rig::save_with(2, first.path(), 1);
  for (int call = 1;; ++call) {
    const TempFolder output("checkpoint");
    fs::copy(first.path(), output.path(), fs::copy_options::recursive);
    const int status = in_child([&] {
      FaultyDisk disk(Fault::Kill, call);
      const auto comm = comm::make_self();
      rig::save(*comm, output.path(), 1, at::kFloat, disk);
    });
    expect_only_whole_checkpoints(output.path(), {1});
    EXPECT_EQ(rig::num_wrong_in(output.path() / "checkpoint-1", 1), 0);
    if (::testing::Test::HasFailure()) break;
    if (!WIFEXITED(status)) continue;
    EXPECT_EQ(read_manifest(output.path() / "checkpoint-1").world_size, 1) << "the new one took its place";
    EXPECT_EQ(rig::entries(output.path()), std::vector<std::string>{"checkpoint-1"});
    break;
  }
}

/// A full disk at every call of rank `bad` in turn: all ranks are told, nothing stays, and the next save succeeds.
void fail_everywhere(int size, int bad) {
  int failures = 0;
  for (int call = 1;; ++call) {
    const TempFolder output("checkpoint");
    save_alone(output.path(), 1);
    FaultyDisk faulty(Fault::Fail, call), sound(Fault::None, 0);
    const auto errors = rig::run_ranks(size, [&](comm::Communicator& comm) {
      Rank rank(comm);
      rank.fill(2);
      CheckpointWriter writer(comm, output.path(), comm.rank() == bad ? faulty : sound);
      writer.begin(rank.job(2));
      std::optional<Error> error;
      try {
        writer.wait();
        writer.wait();
      } catch (const Error& problem) {
        error = problem;
      }
      EXPECT_FALSE(writer.saving());
      writer.begin(rank.job(3));
      EXPECT_TRUE(writer.finish().published.has_value()) << "the writer goes on";
      if (error) throw *error;
    });
    if (faulty.num_calls() < call) break;
    ++failures;
    expect_only_whole_checkpoints(output.path(), {1, 2, 3});
    for (const std::string& error : errors) {
      if (error.empty()) {
        // The failed call came so late that the checkpoint stands, or its failure does no harm (the probe's removal).
        continue;
      }
      EXPECT_TRUE(error.starts_with("Environment: ")) << error;
      EXPECT_NE(error.find(": No space left on device. Free some space"), std::string::npos) << error;
      EXPECT_EQ(error, errors.front()) << "all ranks say the same";
    }
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(failures, 10);
}

TEST(CheckpointFaults, AFullDiskAtAnyCallIsToldToAllRanks) {
  fail_everywhere(1, 0);
  fail_everywhere(3, 0);
  fail_everywhere(3, 2);
}

TEST(CheckpointFaults, EverythingIsOnTheDeviceBeforeItIsSeen) {
  const TempFolder output("checkpoint");
  FaultyDisk disk(Fault::None, 0);
  const auto comm = comm::make_self();
  rig::save(*comm, output.path(), 1, at::kFloat, disk);
  const std::vector<std::string>& trace = disk.trace();
  const auto place = [&](const std::string& what) {
    return std::find(trace.begin(), trace.end(), what) - trace.begin();
  };
  const auto last_place = [&](const std::string& what) {
    return std::find(trace.rbegin(), trace.rend(), what).base() - trace.begin() - 1;
  };
  const fs::path partial = output.path() / partial_name(1);
  const auto shown = place("rename " + (output.path() / "checkpoint-1").string());
  ASSERT_LT(static_cast<size_t>(shown), trace.size());
  const std::string manifest_path = (partial / "manifest.json").string();
  const auto manifest = place("open " + manifest_path);
  EXPECT_GT(place("sync " + manifest_path), last_place("write " + manifest_path));
  for (const char* name : {"model.safetensors", "optimizer/part-0-of-1.safetensors", "config.json", "run.json",
                           "additional/one.jinja"}) {
    const std::string path = (partial / name).string();
    EXPECT_GT(place("sync " + path), last_place("write " + path)) << name;
    EXPECT_LT(place("sync " + path), manifest) << name << " before the manifest";
  }
  for (const fs::path& folder : {partial, partial / "optimizer", partial / "additional"}) {
    EXPECT_GT(place("sync " + folder.string()), place("sync " + manifest_path)) << folder;
    EXPECT_LT(place("sync " + folder.string()), shown) << folder;
  }
  EXPECT_GT(place("sync " + output.path().string()), shown);
  EXPECT_LT(static_cast<size_t>(place("sync " + output.path().string())), trace.size());
}

/// A file system of 96 KiB at `folder`, where this process may have one; else files may not grow beyond 16 KiB.
void make_disk_small(const fs::path& folder) {
  ::signal(SIGXFSZ, SIG_IGN);
  const bool own = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                   ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=96k") == 0;
  if (own) return;
  const rlimit limit{16'384, 16'384};
  LS_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
}

TEST(CheckpointFaults, ARealFullDiskIsNamed) {
  const TempFolder output("checkpoint");
  const int status = in_child([&] {
    make_disk_small(output.path());
    const auto comm = comm::make_self();
    try {
      rig::save(*comm, output.path(), 2);
    } catch (const Error& error) {
      const std::string text = error.what();
      LS_CHECK(error.kind() == ErrorKind::Environment, "{}", text);
      LS_CHECK(text.find("checkpoint-2 was not saved: rank 0: ") == 0 && text.find("cannot write: ") != text.npos, "{}", text);
      LS_CHECK(text.find("No space left") != text.npos || text.find("File too large") != text.npos, "{}", text);
      LS_CHECK(fs::is_empty(output.path()), "something was left");
      return;
    }
    throw Error::internal("nothing was thrown");
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kEndedWell);
}

TEST(CheckpointFaults, AReadOnlyFolderIsNamedBeforeTraining) {
  const TempFolder scratch("checkpoint");
  const fs::path output = scratch.path() / "out";
  fs::create_directory(output);
  fs::permissions(scratch.path(), fs::perms(0755));
  fs::permissions(output, fs::perms(0555));
  const int status = in_child([&] {
    // The administrator may write everywhere, so be somebody else.
    LS_CHECK(::geteuid() != 0 || ::setuid(65'534) == 0, "setuid");
    for (const std::string& error : rig::run_ranks(2, [&](comm::Communicator& comm) { CheckpointWriter(comm, output); })) {
      LS_CHECK(error.starts_with("Environment: " + output.string()) && error.find("Permission denied") != error.npos, "{}",
               error);
    }
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kEndedWell);
}

TEST(CheckpointFaults, RanksWithAnotherFolderAreNamed) {
  const TempFolder one("checkpoint"), other("checkpoint");
  const auto errors = rig::run_ranks(3, [&](comm::Communicator& comm) {
    CheckpointWriter(comm, comm.rank() == 2 ? other.path() : one.path());
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(error.starts_with("Environment: ") && error.find("is not seen by rank 2.") != error.npos) << error;
  }
  EXPECT_TRUE(fs::is_empty(one.path()));
}

TEST(CheckpointFaults, AMissingRankIsNamed) {
  const TempFolder output("checkpoint");
  const auto impatient = comm::make_threads(3, Milliseconds(1000));
  std::latch others_are_done(2);
  const auto errors = rig::run_ranks(3, [&](comm::Communicator& comm) {
    Rank rank(comm);
    rank.fill(1);
    comm.barrier("start");
    CheckpointWriter writer(*impatient[static_cast<size_t>(comm.rank())], output.path());
    writer.begin(rank.job(1));
    writer.wait();
    comm.barrier("all have written");
    if (comm.rank() == 1) return others_are_done.wait();
    try {
      writer.wait();
      ADD_FAILURE() << "published without rank 1";
    } catch (const Error& error) {
      others_are_done.count_down();
      EXPECT_TRUE(error.kind() == ErrorKind::Timeout || error.kind() == ErrorKind::Peer);
      EXPECT_NE(std::string(error.what()).find("rank(s) 1 did not come to 'what the ranks wrote of a checkpoint'"),
                std::string::npos)
          << error.what();
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_TRUE(list_checkpoints(output.path()).empty());
}

TEST(CheckpointWriter, WaitsForTheReadingAloneAndPublishesLater) {
  const TempFolder output("checkpoint");
  HangingDisk disk(HangingDisk::Where::Sync);
  const auto comm = comm::make_self();
  Rank rank(*comm);
  rank.fill(4);
  CheckpointWriter writer(*comm, output.path(), disk);
  EXPECT_FALSE(writer.wait().published.has_value()) << "nothing to wait for";
  disk.hold();
  writer.begin(rank.job(4));
  EXPECT_FALSE(writer.wait().published.has_value()) << "though no fsync has returned";
  EXPECT_TRUE(writer.saving());
  EXPECT_TRUE(list_checkpoints(output.path()).empty());
  disk.let_go();
  const WaitResult result = writer.wait();
  ASSERT_TRUE(result.published.has_value());
  EXPECT_EQ(result.published->folder, output.path() / "checkpoint-4");
  EXPECT_EQ(result.published->update, 4);
  int64_t bytes = 0;
  for (const ManifestFile& file : read_manifest(output.path() / "checkpoint-4").files) bytes += file.bytes;
  EXPECT_EQ(result.published->num_bytes, bytes);
  EXPECT_GE(result.published->stall_s, result.stall_s);
  EXPECT_FALSE(writer.wait().published.has_value());
}

TEST(CheckpointWriter, SaysThatTheDiskHangs) {
  const TempFolder output("checkpoint");
  HangingDisk disk(HangingDisk::Where::Write);
  const auto errors = rig::run_ranks(
      1,
      [&](comm::Communicator& comm) {
        Rank rank(comm);
        rank.fill(4);
        CheckpointWriter writer(comm, output.path(), disk);
        disk.hold();
        writer.begin(rank.job(4));
        try {
          writer.wait();
        } catch (const Error&) {
          disk.let_go();
          throw;
        }
      },
      Milliseconds(300));
  EXPECT_TRUE(errors[0].starts_with("Timeout: checkpoint-4: rank 0 has not written its share within")) << errors[0];
  EXPECT_TRUE(fs::is_empty(output.path())) << "a writer that ends removes what it began";
}

}  // namespace
}  // namespace lockstep::checkpoint
