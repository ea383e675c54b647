#include "lockstep/checkpoint/publish.h"

#include "lockstep/base/error.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>

namespace lockstep::checkpoint {
namespace {

/// Collective. `work` is done by rank 0; what it throws is thrown by every rank.
void on_rank_0(comm::Communicator& comm, const char* what, const std::function<void()>& work) {
  RankReport outcome{.rank = 0, .error = {}, .error_kind = {}, .files = {}};
  if (comm.rank() == 0) {
    try {
      work();
    } catch (const Error& error) {
      outcome.error = error.what();
      outcome.error_kind = name(error.kind());
    } catch (const std::exception& error) {
      outcome.error = error.what();
      outcome.error_kind = name(ErrorKind::Internal);
    }
  }
  const RankReport said = parse_report(comm.all_gather_text(format_report(outcome), what).front());
  if (!said.error.empty()) throw Error(error_kind_from_name(said.error_kind), said.error);
}

void remove_quietly(Disk& disk, const fs::path& path) {
  try {
    remove_tree(disk, path);
  } catch (const std::exception&) {
    // The error that led here matters more, and the next run clears it away.
  }
}

/// Rank 0's view of what the ranks say they wrote: another size means another folder.
void check_sizes(const fs::path& partial, std::span<const ManifestFile> files, std::span<const RankReport> reports) {
  for (const ManifestFile& file : files) {
    struct stat status {};
    const int64_t found = ::stat((partial / file.name).c_str(), &status) == 0 ? status.st_size : -1;
    if (found == file.bytes) continue;
    std::string ranks;
    for (const RankReport& report : reports) {
      const bool wrote = std::any_of(report.files.begin(), report.files.end(),
                                     [&](const ManifestFile& one) { return one.name == file.name; });
      if (wrote) ranks += fmt::format(" {}", report.rank);
    }
    throw Error::environment("{}: {} bytes were written (by rank{}), but rank 0 finds {}. Is --output_dir the same folder "
                             "on all nodes?",
                             (partial / file.name).string(), file.bytes, ranks,
                             found < 0 ? std::string("no such file") : std::to_string(found));
  }
}

void sync_all_folders(Disk& disk, const fs::path& partial, std::span<const ManifestFile> files) {
  std::set<fs::path> folders{partial};
  for (const ManifestFile& file : files) {
    for (fs::path folder = fs::path(file.name).parent_path(); !folder.empty(); folder = folder.parent_path()) {
      folders.insert(partial / folder);
    }
  }
  // The deepest first: an entry is on the device before the folder that holds it.
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) sync_folder(disk, *folder);
}

Manifest make_manifest(const CheckpointJob& job, std::span<const RankReport> reports) {
  return {.update = job.update,
          .world_size = static_cast<int>(reports.size()),
          .weights_dtype = dtype_name(job.weights.front().dtype),
          .optimizer = job.optimizer,
          .files = merge_reports(reports)};
}

/// Every byte of the model's files must have been written by somebody.
void check_coverage(const CheckpointJob& job, const Manifest& manifest) {
  for (const FilePlan& plan : plan_weight_files(job.weights, job.max_shard_bytes)) {
    const ManifestFile* file = manifest.find(plan.file);
    LS_CHECK(file != nullptr && file->bytes == plan.num_bytes, "{}: the ranks wrote {} of {} bytes", plan.file,
             file == nullptr ? 0 : file->bytes, plan.num_bytes);
  }
}

[[noreturn]] void throw_first(std::span<const RankReport> reports, const std::string& checkpoint) {
  const auto bad = [](const RankReport& report) { return !report.error.empty(); };
  const RankReport& first = *std::find_if(reports.begin(), reports.end(), bad);
  const auto others = std::count_if(reports.begin(), reports.end(), bad) - 1;
  throw Error(error_kind_from_name(first.error_kind),
              fmt::format("{} was not saved: rank {}{}: {}", checkpoint, first.rank,
                          others > 0 ? fmt::format(" (and {} more)", others) : "", first.error));
}

}  // namespace

void require_shared_folder(comm::Communicator& comm, Disk& disk, const fs::path& output) {
  const std::string probe = comm.all_gather_text(probe_name(::getpid()), "name of the probe").front();
  on_rank_0(comm, "probe of the output folder", [&] {
    remove_leftovers(disk, output);
    write_whole_file(disk, output / probe, probe);
  });
  const bool seen = fs::exists(output / probe);
  const std::vector<std::string> all = comm.all_gather_text(seen ? "yes" : "no", "view of the output folder");
  if (comm.rank() == 0) disk.remove(output / probe);
  std::string blind;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != "yes") blind += fmt::format("{}{}", blind.empty() ? "" : ", ", rank);
  }
  if (blind.empty()) return;
  throw Error::environment("--output_dir {}: what rank 0 writes there is not seen by rank {}. Checkpoints are written by all "
                           "ranks: name a folder that all nodes share.",
                           output.string(), blind);
}

Publication publish(comm::Communicator& comm, Disk& disk, const fs::path& output, const CheckpointJob& job,
                    const RankReport& mine) {
  const std::string name = checkpoint_name(job.update);
  const fs::path partial = output / partial_name(job.update);
  std::vector<RankReport> reports;
  for (const std::string& text : comm.all_gather_text(format_report(mine), "what the ranks wrote of a checkpoint")) {
    reports.push_back(parse_report(text));
  }
  const bool all_well = std::all_of(reports.begin(), reports.end(), [](const RankReport& r) { return r.error.empty(); });
  Manifest manifest = make_manifest(job, reports);
  Publication done{.folder = output / name, .num_bytes = 0, .replaced = {}};
  for (const ManifestFile& file : manifest.files) done.num_bytes += file.bytes;

  on_rank_0(comm, "publishing a checkpoint", [&] {
    if (!all_well) return remove_quietly(disk, partial);
    try {
      check_coverage(job, manifest);
      check_sizes(partial, manifest.files, reports);
      write_whole_file(disk, partial / kManifestFile, format_manifest(manifest));
      sync_all_folders(disk, partial, manifest.files);
      done.replaced = put_in_place(disk, partial, done.folder);
      sync_folder(disk, output);
    } catch (...) {
      if (!done.replaced) remove_quietly(disk, partial);
      throw;
    }
  });
  if (!all_well) throw_first(reports, name);
  return done;
}

}  // namespace lockstep::checkpoint
