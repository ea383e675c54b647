#include "lockstep/launch/signals.h"

#include "lockstep/base/error.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {

namespace {
/// Sent by the kernel for a failed write; the write's own error tells enough.
constexpr int kOfWrites[] = {SIGPIPE, SIGXFSZ};
}  // namespace

SignalReader::SignalReader(const std::vector<int>& signals) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : signals) {
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
  for (const int signal : kOfWrites) sigaddset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
}

SignalReader::~SignalReader() {
  read();
  const timespec at_once = {};
  for (const int signal : kOfWrites) {
    if (sigismember(&mask_before_, signal) != 0) continue;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    sigtimedwait(&one, nullptr, &at_once);
  }
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
