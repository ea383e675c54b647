#include "lockstep/library/settings.h"

#include "lockstep/base/error.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/launch/worker_environment.h"
#include "lockstep/train/settings.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <barrier>
#include <cstdlib>
#include <string_view>

// MKL's own functions (mkl_cbwr_get), as libtorch's copy of it names them; null where libtorch was built without.
extern "C" int mkl_serv_cbwr_get(int what) __attribute__((weak));

namespace lockstep::library {
namespace {

constexpr int kCbwrAll = ~0;
constexpr int kCbwrStrict = 0x10000;

/// `value` unless the user's own is as good.
void set_variable(const char* name, const std::string& value, std::string_view good_end) {
  const char* now = std::getenv(name);
  if (now != nullptr && std::string_view(now).ends_with(good_end)) return;
  ::setenv(name, value.c_str(), 1);
}

/// One item per thread: none is handed out twice to a thread while the others wait at the barrier.
void in_every_thread(ThreadTeam& team, const std::function<void()>& work) {
  std::barrier all_here(team.size());
  team.run(static_cast<size_t>(team.size()), [&](size_t, int) {
    work();
    all_here.arrive_and_wait();
  });
}

}  // namespace

void use_bit_stable_settings(ThreadTeam& team) {
  set_variable("OMP_NUM_THREADS", "1", "1");
  set_variable("MKL_NUM_THREADS", "1", "1");
  set_variable("MKL_CBWR", launch::mkl_cbwr(launch::cpu_flags()), ",STRICT");
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512", 0);  // as launch::worker_environment has it, and why
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 1);
    c10::initLogging();  // libtorch reads it when it is asked to; a program that set it has its own way
  }
  // libgomp read OMP_NUM_THREADS when it was loaded; this sets it for threads that exist.
  in_every_thread(team, [] { at::set_num_threads(1); });
  train::require_bit_stable_settings();
  if (mkl_serv_cbwr_get != nullptr && (mkl_serv_cbwr_get(kCbwrAll) & kCbwrStrict) == 0) {
    throw Error::environment("MKL was used in this program before lockstep could set MKL_CBWR = {}, so its products would change "
                             "bits with the operands' alignment. Set that variable before the program starts.",
                             std::getenv("MKL_CBWR"));
  }
}

}  // namespace lockstep::library
