#include "lockstep/launch/slurm_token.h"

#include "lockstep/base/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::launch {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kMostFileBytes = 4096;
constexpr std::string_view kTokenMagic = "lockstep-token-1";
constexpr std::string_view kOtherWay = "or give a token by --rdzv_conf token_file=FILE, a file that all nodes see";

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t got = ::getrandom(bytes.data() + filled, count - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error::environment("no random numbers from the kernel: {}.", std::strerror(errno));
    filled += static_cast<size_t>(got);
  }
  return bytes;
}

std::string to_hex_text(std::string_view bytes) {
  std::string text;
  for (char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::optional<std::string> from_hex_text(std::string_view text) {
  if (text.size() != 2 * kSecretBytes) return std::nullopt;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(16 * high + low);
  }
  return bytes;
}

/// "lockstep-token-1 BINDING HEX"
std::string content_of(const StepSecretPlace& place, std::string_view secret) {
  return fmt::format("{} {} {}", kTokenMagic, place.binding, to_hex_text(secret));
}

struct Content {
  std::string secret;
  bool is_of_this_start = false;
};
std::optional<Content> read_content(std::string_view text, const StepSecretPlace& place) {
  const size_t first = text.find(' ');
  const size_t last = text.rfind(' ');
  if (first == std::string_view::npos || first == last || text.substr(0, first) != kTokenMagic) return std::nullopt;
  auto secret = from_hex_text(text.substr(last + 1));
  if (!secret) return std::nullopt;
  return Content{std::move(*secret), text.substr(first + 1, last - first - 1) == place.binding};
}

[[noreturn]] void fail_to_write(const fs::path& path, const char* what, int code) {
  throw Error::environment("the job's token cannot be written: {} {}: {}. Submit from a folder that all nodes can "
                           "write to, {}.",
                           what, path.string(), std::strerror(code), kOtherWay);
}

void write_private_file(const fs::path& path, std::string_view content) {
  const std::string suffix = fmt::format(".tmp-{}-{}", ::getpid(), to_hex_text(random_bytes(4)));
  const fs::path temporary = path.parent_path() / (path.filename().string() + suffix);
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) fail_to_write(temporary, "create", errno);
  const auto fail = [&](const char* what) {
    const int code = errno;
    ::unlink(temporary.c_str());
    fail_to_write(temporary, what, code);
  };
  errno = ENOSPC;  // for a write that is cut short
  if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) fail("write");
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail("fsync");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename");
}

/// NFS may keep the answer "there is no such file" for half a minute; listing the folder makes it ask again.
void refresh(const fs::path& folder) {
  if (DIR* listing = ::opendir(folder.c_str())) {
    ::readdir(listing);
    ::closedir(listing);
  }
}

std::optional<std::string> read_private_file(const fs::path& path, bool& is_private, std::string& why) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0) {
    why = fmt::format("{}: {}", path.string(), std::strerror(errno));
    if (errno == ENOENT || errno == ESTALE || errno == ENOTDIR) return std::nullopt;
    throw Error::environment("the job's token cannot be read: {}.", why);
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error::environment("the job's token {} is no plain file. Remove it.", path.string());
  }
  is_private = status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
  std::string text(kMostFileBytes, '\0');
  const ssize_t count = ::read(fd.get(), text.data(), text.size());
  if (count < 0) throw Error::environment("the job's token cannot be read: {}: "
                                          "{}.", path.string(), std::strerror(errno));
  text.resize(static_cast<size_t>(count));
  return text;
}

/// The text inside a sealed file, the file's own text otherwise.
std::string open_text(const std::string& text, const fs::path& path, bool is_private, const Munge* munge) {
  if (text.starts_with("MUNGE:")) {
    if (munge == nullptr) {
      throw Error::environment("the job's token {} is sealed by munge, which does not work on this node. Make munge "
                               "work on all nodes or on none, {}.",
                               path.string(), kOtherWay);
    }
    std::string why;
    auto content = munge->unseal(text, why);
    if (!content) {
      throw Error::environment("the job's token {} is not to be trusted: {}. Remove it.", path.string(), why);
    }
    return std::move(*content);
  }
  if (!is_private) {
    throw Error::environment("the job's token {} is not to be trusted: it is not this user's, or not readable by this "
                             "user alone (mode 0600). Remove it, submit from a folder that keeps owners and modes, {}.",
                             path.string(), kOtherWay);
  }
  return text;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

std::string plain(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return !is_plain(c); }, '_');
  return text.substr(0, 100);
}

}  // namespace

StepSecretPlace step_secret_place(const SlurmStep& step) {
  if (step.job.submit_dir.empty()) {
    throw Error::environment("SLURM_SUBMIT_DIR is not set, so there is no folder for the job's token. Set it, {}.",
                             kOtherWay);
  }
  StepSecretPlace place;
  place.folder = step.job.submit_dir;
  place.name = fmt::format(".lockstep-token-{}-{}", plain(step.job.cluster), plain(step.run_id()));
  place.binding = fmt::format("{}/{}/{}", plain(step.job.cluster), plain(step.run_id()), plain(step.launcher_port));
  return place;
}

StepSecret publish_step_secret(const StepSecretPlace& place, const Munge* munge) {
  StepSecret result;
  result.secret = random_bytes(kSecretBytes);
  const std::string content = content_of(place, result.secret);
  const fs::path path = place.folder / place.name;
  write_private_file(path, munge == nullptr ? content : munge->seal(content));
  result.how = fmt::format("{} {}", munge == nullptr ? "file" : "sealed by munge in", path.string());
  return result;
}

std::optional<StepSecret> read_step_secret(const StepSecretPlace& place, const Munge* munge, std::string& why) {
  const fs::path path = place.folder / place.name;
  refresh(place.folder);
  bool is_private = false;
  const auto text = read_private_file(path, is_private, why);
  if (!text) return std::nullopt;
  const auto content = read_content(open_text(*text, path, is_private, munge), place);
  if (!content) throw Error::environment("the job's token {} is damaged. Remove it.", path.string());
  if (!content->is_of_this_start) {
    why = fmt::format("{}: of an earlier start", path.string());
    return std::nullopt;
  }
  const bool is_sealed = text->starts_with("MUNGE:");
  return StepSecret{content->secret, fmt::format("{} {}", is_sealed ? "sealed by munge in" : "file", path.string())};
}

std::optional<StepSecret> await_step_secret(const StepSecretPlace& place, const Munge* munge, const Deadline& deadline,
                                            const std::function<void(const std::string&)>& report,
                                            const std::function<bool(Milliseconds)>& pause) {
  constexpr Milliseconds kReportEvery{5'000};
  const auto started = Clock::now();
  auto next_report = started + kReportEvery;
  Milliseconds next_look{2};
  while (true) {
    std::string why;
    if (auto secret = read_step_secret(place, munge, why)) return secret;
    if (deadline.passed()) {
      throw Error::timeout("the job's token did not come within {:.0f} s ({}). Node 0 writes it into the folder that "
                           "the job was submitted from: submit from a folder that all nodes see, {}.",
                           seconds_since(started), why, kOtherWay);
    }
    if (Clock::now() >= next_report) {
      next_report += kReportEvery;
      report(fmt::format("waits for the job's token from node 0 ({}); {:.0f} s left", why,
                         static_cast<double>(deadline.remaining().count()) / 1e3));
    }
    if (!pause(std::min(next_look, deadline.remaining()))) return std::nullopt;
    next_look = std::min(2 * next_look, Milliseconds(250));
  }
}

void remove_step_secret(const StepSecretPlace& place) noexcept {
  try {
    const fs::path path = place.folder / place.name;
    std::error_code ignored;
    fs::remove(path, ignored);
  } catch (const std::exception&) {
    // Nothing depends on it: the next start has another name or another binding.
  }
}

}  // namespace lockstep::launch
