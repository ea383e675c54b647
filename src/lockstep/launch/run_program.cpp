// The edge of `lockstep run`: what this machine has, and where the program lies.
#include "lockstep/base/error.h"
#include "lockstep/launch/run_command_line.h"

#include <dirent.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace lockstep::launch {

namespace {

int count_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

/// /dev/nvidia0 and so on; nvidiactl and the like are no GPUs.
int count_device_files() {
  DIR* folder = opendir("/dev");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with("nvidia") || name.size() == 6) continue;
    const auto rest = name.substr(6);
    count += std::all_of(rest.begin(), rest.end(), [](unsigned char letter) { return std::isdigit(letter) != 0; });
  }
  closedir(folder);
  return count;
}

std::optional<int> count_gpus(const Environment& environment) {
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  int count = 0;
  if (visible == environment.end()) {
    count = count_device_files();
  } else if (!visible->second.empty() && visible->second != "-1") {
    count = 1 + static_cast<int>(std::count(visible->second.begin(), visible->second.end(), ','));
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

std::string fresh_uuid() {
  std::array<unsigned char, 16> bytes = {};
  if (getentropy(bytes.data(), bytes.size()) != 0) throw Error::environment("random numbers: {}", std::strerror(errno));
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0FU) | 0x40U);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3FU) | 0x80U);
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

bool is_file(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_executable(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

std::optional<std::string> find_on_path(const std::string& name, const Environment& environment) {
  const auto found = environment.find("PATH");
  std::string_view rest = found == environment.end() ? std::string_view("/usr/bin:/bin") : found->second;
  while (true) {
    const size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    const std::string candidate = std::string(folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(candidate)) return candidate;
    if (colon == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(colon + 1);
  }
}

std::string python(const Environment& environment) {
  const auto given = environment.find("PYTHON_EXEC");
  const std::string name = given == environment.end() || given->second.empty() ? "python3" : given->second;
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) return name;
    throw Error::environment("PYTHON_EXEC={}: is no program that may be executed.", name);
  }
  if (const auto found = find_on_path(name, environment)) return *found;
  throw Error::environment("{} is not on PATH. Set PYTHON_EXEC to the Python to be used.", name);
}

bool is_python_script(const std::string& path) {
  return path.ends_with(".py") || path.ends_with(".pyc") || path.ends_with(".pyz") ||
         is_file(path + "/__main__.py");
}

std::string executable(const std::string& name, const Environment& environment) {
  if (name.find('/') == std::string::npos) {
    if (const auto found = find_on_path(name, environment)) return *found;
    if (is_executable(name)) throw Error::usage("{}: there is no such program on PATH. Did you mean ./{}?", name, name);
    if (is_file(name)) {
      throw Error::usage("{}: there is no such program on PATH. If you mean the file here, make it executable "
                         "(chmod +x {}) and write ./{}; a Python script must be called X.py.", name, name, name);
    }
    throw Error::usage("{}: there is no such program, neither here nor on PATH.", name);
  }
  struct stat status = {};
  if (stat(name.c_str(), &status) != 0) throw Error::usage("{}: {}.", name, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw Error::usage("{}: is a folder, not a program.", name);
  if (!is_executable(name)) {
    throw Error::usage("{}: may not be executed. Make it executable (chmod +x {}), or, if it is a Python script, call "
                       "it X.py.", name, name);
  }
  return name;
}

}  // namespace

RunMachine this_machine(const Environment& environment) {
  return {.num_cpus = count_cpus(), .num_gpus = count_gpus(environment), .fresh_id = fresh_uuid()};
}

std::vector<std::string> resolve_program(const ParsedRun& parsed, const Environment& environment) {
  const std::string& name = parsed.program.front();
  std::vector<std::string> command;
  if (parsed.options.module) {
    command = {python(environment), "-u", "-m", name};
  } else if (!parsed.options.no_python && is_python_script(name)) {
    if (access(name.c_str(), R_OK) != 0) throw Error::usage("{}: {}.", name, std::strerror(errno));
    command = {python(environment), "-u", name};
  } else {
    command = {executable(name, environment)};
  }
  command.insert(command.end(), parsed.program.begin() + 1, parsed.program.end());
  return command;
}

}  // namespace lockstep::launch
