// lockstep generate: from its command line to the program that computes, which takes this one's place.
#include "lockstep/apps/own_command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/worker_environment.h"
#include "lockstep/recipes/generate_cli.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace lockstep::apps {
namespace {

/// One process of one thread per product: the settings that make results the same everywhere.
void set_worker_environment(const options::EnvironmentVariables& given) {
  const std::string cbwr = launch::mkl_cbwr(launch::cpu_flags());
  for (const auto& [name, value] : given) setenv(name.c_str(), value.c_str(), 1);
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  for (const auto& [name, value] : {std::pair{"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}, {"MKL_CBWR", cbwr.c_str()},
                                    {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512"}})
    setenv(name, value, 1);
}

}  // namespace

int run_generate(const Invocation& invocation) {
  require_readable_words(invocation);
  const options::Environment environment = environment_of_step();
  const recipes::ParsedGenerate parsed = recipes::parse_generate(invocation.args, environment, isatty(STDIN_FILENO) == 1);
  if (parsed.help) {
    fmt::print("{}", *parsed.help);
    return 0;
  }
  for (const std::string& note : parsed.notes) fmt::print(stderr, "note: {}\n", note);
  require_model_folder(*parsed.options.model_name_or_path);
  if (parsed.options.file) require_data("file", *parsed.options.file);
  if (parsed.options.chat_template_path) require_data("chat_template_path", *parsed.options.chat_template_path);
  if (parsed.dry_run) {
    fmt::print("{}", recipes::resolved_generate_text(parsed, environment.page));
    return 0;
  }
  set_worker_environment(parsed.environment);
  const std::string program = worker_program().string(), options = recipes::dump_generate(parsed);
  std::fflush(nullptr);
  execl(program.c_str(), program.c_str(), "generate", "--options", options.c_str(), static_cast<char*>(nullptr));
  throw Error::environment("{} cannot be started: {}.", program, std::strerror(errno));
}

}  // namespace lockstep::apps
