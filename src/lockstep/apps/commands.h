#pragma once

#include <span>
#include <string>
#include <vector>

/// The commands of `lockstep`. Each takes the words after its name and returns the exit code; what is wrong is thrown.
namespace lockstep::apps {

/// What a command may want beside its own words.
struct Invocation {
  std::vector<std::string> args;  ///< after the command's name
  std::vector<std::string> argv;  ///< the whole command line, as it was typed
};

/// `words`: those after the program's name. Returns the exit code.
int run_command_line(const std::vector<std::string>& words, const std::vector<std::string>& argv);

int run_sft(const Invocation& invocation);
int run_classify(const Invocation& invocation);
int run_replay(const Invocation& invocation);
int run_generate(const Invocation& invocation);
int run_run(const Invocation& invocation);

}  // namespace lockstep::apps
