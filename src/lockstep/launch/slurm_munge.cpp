#include "lockstep/launch/slurm_munge.h"

#include "lockstep/base/error.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace lockstep::launch {
namespace {

// Numbers of munge's public interface, which has been stable since 0.5 (libmunge.so.2).
constexpr int kSuccess = 0;
constexpr int kExpired = 15;
constexpr int kRewound = 16;
constexpr int kReplayed = 17;
constexpr int kUnauthorized = 18;
constexpr int kOptionSocket = 8;
constexpr int kOptionUidRestriction = 9;

using Context = void*;
using CreateFunction = Context (*)();
using DestroyFunction = void (*)(Context);
using SetFunction = int (*)(Context, int, ...);
using ErrorTextFunction = const char* (*)(Context);
using StatusTextFunction = const char* (*)(int);
using EncodeFunction = int (*)(char**, Context, const void*, int);
using DecodeFunction = int (*)(const char*, Context, void**, int*, uid_t*, gid_t*);

/// What the library hands out was allocated by malloc.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Malloced = std::unique_ptr<T, Free>;

}  // namespace

struct Munge::Library {
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (context != nullptr) destroy(context);
    // The library stays loaded: unloading one that may have left handlers behind gains nothing.
  }

  template <class Function>
  bool load(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  }

  std::string words(int status) const {
    const char* text = error_text(context);
    if (text == nullptr || *text == '\0') text = status_text(status);
    return text == nullptr ? fmt::format("status {}", status) : text;
  }

  CreateFunction create = nullptr;
  DestroyFunction destroy = nullptr;
  SetFunction set = nullptr;
  ErrorTextFunction error_text = nullptr;
  StatusTextFunction status_text = nullptr;
  EncodeFunction encode = nullptr;
  DecodeFunction decode = nullptr;
  Context context = nullptr;
};

Munge::Munge(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Munge::~Munge() = default;

std::unique_ptr<Munge> Munge::open(const std::string& socket, std::string& why) {
  void* handle = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why = "libmunge.so.2 is not installed";
    return nullptr;
  }
  auto library = std::make_unique<Library>();
  const bool is_complete =
      library->load(handle, "munge_ctx_create", library->create) &&
      library->load(handle, "munge_ctx_destroy", library->destroy) &&
      library->load(handle, "munge_ctx_set", library->set) &&
      library->load(handle, "munge_ctx_strerror", library->error_text) &&
      library->load(handle, "munge_strerror", library->status_text) &&
      library->load(handle, "munge_encode", library->encode) && library->load(handle, "munge_decode", library->decode);
  if (!is_complete) {
    why = "libmunge.so.2 lacks a function";
    return nullptr;
  }
  library->context = library->create();
  const bool is_set = library->context != nullptr &&
                      library->set(library->context, kOptionUidRestriction, ::geteuid()) == kSuccess &&
                      (socket.empty() || library->set(library->context, kOptionSocket, socket.c_str()) == kSuccess);
  if (!is_set) {
    why = "munge cannot be set up";
    return nullptr;
  }
  std::unique_ptr<Munge> munge(new Munge(std::move(library)));
  try {
    if (!munge->unseal(munge->seal("lockstep"), why)) return nullptr;
  } catch (const Error& problem) {
    why = problem.what();
    return nullptr;
  }
  return munge;
}

std::string Munge::seal(std::string_view payload) const {
  LS_CHECK(payload.size() < (1 << 16), "a payload of {} bytes", payload.size());
  char* raw = nullptr;
  const int status = library_->encode(&raw, library_->context, payload.data(), static_cast<int>(payload.size()));
  const Malloced<char> credential(raw);
  if (status != kSuccess || credential == nullptr) {
    throw Error::environment("munge: {}. Is munged running on this node?", library_->words(status));
  }
  return credential.get();
}

std::optional<std::string> Munge::unseal(const std::string& credential, std::string& why) const {
  void* raw = nullptr;
  int length = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  const int status = library_->decode(credential.c_str(), library_->context, &raw, &length, &uid, &gid);
  const Malloced<void> payload(raw);
  if (status != kSuccess && status != kExpired && status != kRewound && status != kReplayed) {
    why = status == kUnauthorized ? "munge: another user's credential" : "munge: " + library_->words(status);
    return std::nullopt;
  }
  if (uid != ::geteuid()) {
    why = fmt::format("munge: sealed by user {}, not by this one ({})", uid, ::geteuid());
    return std::nullopt;
  }
  if (payload == nullptr || length <= 0) {
    why = "munge: the credential is empty";
    return std::nullopt;
  }
  return std::string(static_cast<const char*>(payload.get()), static_cast<size_t>(length));
}

}  // namespace lockstep::launch
