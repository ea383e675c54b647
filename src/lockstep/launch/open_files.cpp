#include "lockstep/launch/open_files.h"

namespace lockstep::launch {

OpenFileLimit::OpenFileLimit() {
  if (getrlimit(RLIMIT_NOFILE, &before_) != 0) before_ = {RLIM_INFINITY, RLIM_INFINITY};
  rlimit raised = before_;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
}

OpenFileLimit::~OpenFileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

}  // namespace lockstep::launch
