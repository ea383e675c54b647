#include "lockstep/net/resolve.h"

#include "lockstep/base/error.h"

#include <netdb.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace lockstep::net {
namespace {

using Outcome = Resolved::Outcome;

Resolved problem(Outcome outcome, std::string text) { return {.outcome = outcome, .problem = std::move(text)}; }

Resolved no_answer(const Endpoint& endpoint) {
  return problem(Outcome::NoAnswer, fmt::format("the look-up of '{}' was not answered in time. Check the name servers in "
                                                "/etc/resolv.conf, or give a numeric address.", endpoint.host));
}

Resolved from_error(const Endpoint& endpoint, int code, int system_error) {
  switch (code) {
    case EAI_NONAME:
#if defined(EAI_NODATA) && EAI_NODATA != EAI_NONAME
    case EAI_NODATA:
#endif
      return problem(Outcome::UnknownName, fmt::format("the name '{}' is unknown here. Check its spelling, add it to "
                                                       "/etc/hosts, or give a numeric address.", endpoint.host));
    case EAI_AGAIN:
      return problem(Outcome::NoAnswer, fmt::format("the name servers gave no answer for '{}'. Check /etc/resolv.conf, or "
                                                    "give a numeric address.", endpoint.host));
    default:
      return problem(Outcome::Failed, fmt::format("the look-up of '{}' failed: {}", endpoint.host,
                                                  code == EAI_SYSTEM ? std::strerror(system_error) : ::gai_strerror(code)));
  }
}

std::optional<Resolved> without_lookup(const Endpoint& endpoint) {
  const std::optional<Address> address = Address::parse(endpoint.host, endpoint.port);
  if (!address) return std::nullopt;
  return Resolved{.outcome = Outcome::Found, .addresses = {*address}};
}

/// Starts a detached thread that gets none of the process's signals.
void start_detached(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(work)).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Resolved system_lookup(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int code = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &list); code != 0) {
    return from_error(endpoint, code, errno);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  Resolved resolved{.outcome = Outcome::Found};
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    sockaddr_storage raw{};
    std::memcpy(&raw, entry->ai_addr, entry->ai_addrlen);
    const Address address = Address::from_raw(raw).with_port(endpoint.port);
    auto& found = resolved.addresses;
    if (std::find(found.begin(), found.end(), address) == found.end()) found.push_back(address);
  }
  if (resolved.addresses.empty()) return from_error(endpoint, EAI_NONAME, 0);
  return resolved;
}

/// Between the looking thread and the waiting one; whoever leaves last frees it.
struct Resolver::Shared {
  std::mutex mutex;
  std::optional<Resolved> resolved;  ///< guarded by mutex
  UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

Resolver::Resolver(EventLoop& loop, const Endpoint& endpoint, Milliseconds longest, Done done, Lookup lookup)
    : loop_(&loop), done_(std::move(done)), shared_(std::make_shared<Shared>()) {
  if (std::optional<Resolved> known = without_lookup(endpoint)) {
    timer_ = loop_->after(Milliseconds(0), [this, result = std::move(*known)] { finish(result); });
    return;
  }
  if (shared_->wake.get() < 0) {
    throw Error::environment("cannot create an eventfd: {}. Raise the limit on open files (ulimit -n).",
                             std::strerror(errno));
  }
  loop_->watch(shared_->wake.get(), EPOLLIN, [this](uint32_t) {
    std::unique_lock lock(shared_->mutex);
    Resolved result = std::move(*shared_->resolved);
    lock.unlock();
    finish(std::move(result));
  });
  timer_ = loop_->after(longest, [this, result = no_answer(endpoint)] { finish(result); });
  try {
    start_detached([shared = shared_, endpoint, ask = std::move(lookup)] {
      Resolved result = ask(endpoint);
      {
        const std::lock_guard lock(shared->mutex);
        shared->resolved = std::move(result);
      }
      ::eventfd_write(shared->wake.get(), 1);
    });
  } catch (const std::system_error& error) {
    loop_->cancel(timer_);
    Resolved result = problem(Outcome::Failed, fmt::format("cannot start a thread to look '{}' up: {}", endpoint.host,
                                                           error.what()));
    timer_ = loop_->after(Milliseconds(0), [this, result] { finish(result); });
  }
}

Resolver::~Resolver() {
  loop_->cancel(timer_);
  loop_->unwatch(shared_->wake.get());
}

void Resolver::finish(Resolved resolved) {
  loop_->cancel(timer_);
  loop_->unwatch(shared_->wake.get());
  const Done done = std::move(done_);
  done(std::move(resolved));
}

Resolved resolve(const Endpoint& endpoint, Deadline deadline, const Lookup& lookup) {
  if (std::optional<Resolved> known = without_lookup(endpoint)) return *std::move(known);
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Resolved> resolved;  ///< guarded by mutex
  };
  const auto waiting = std::make_shared<Waiting>();
  try {
    start_detached([waiting, endpoint, lookup] {
      Resolved result = lookup(endpoint);
      const std::lock_guard lock(waiting->mutex);
      waiting->resolved = std::move(result);
      waiting->changed.notify_all();
    });
  } catch (const std::system_error& error) {
    return problem(Outcome::Failed, fmt::format("cannot start a thread to look '{}' up: {}", endpoint.host, error.what()));
  }
  std::unique_lock lock(waiting->mutex);
  waiting->changed.wait_until(lock, deadline.when(), [&] { return waiting->resolved.has_value(); });
  return waiting->resolved ? *std::move(waiting->resolved) : no_answer(endpoint);
}

}  // namespace lockstep::net
