#include "lockstep/launch/signals.h"

#include "lockstep/base/error.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {

SignalReader::SignalReader() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
  }
  sigaddset(&wanted, SIGCHLD);
  fd_ = UniqueFd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd_.get() < 0) throw Error::environment("signalfd: {}", std::strerror(errno));

  // Under an ignored SIGCHLD the kernel reaps children itself and their exit codes are lost.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &child_before_);

  sigset_t blocked = wanted;
  sigaddset(&blocked, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
}

SignalReader::~SignalReader() {
  read();
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  const timespec at_once = {};
  if (sigismember(&mask_before_, SIGPIPE) == 0) sigtimedwait(&pipe_signal, nullptr, &at_once);
  sigaction(SIGCHLD, &child_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::vector<int> SignalReader::read() {
  std::vector<int> signals;
  signalfd_siginfo info = {};
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

}  // namespace lockstep::launch
