#include "lockstep/base/profile.h"

#include <cstring>

#include "lockstep/base/deadline.h"

namespace lockstep::profile {

int64_t now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count(); }

Recorder::Recorder(int num_threads, size_t spans_per_thread) {
  for (int thread = 0; thread < num_threads; ++thread) {
    auto spans = std::make_unique<ThreadSpans>();
    spans->recorder = this;
    spans->spans.resize(spans_per_thread);  // its pages are there from now on
    spans->spans.clear();
    threads_.push_back(std::move(spans));
  }
}

Recorder::~Recorder() {
  if (detail::t_spans != nullptr && detail::t_spans->recorder == this) detail::t_spans = nullptr;
}

void Recorder::start() {
  detail::t_spans = thread(0);
  for (const auto& spans : threads_) spans->idle_since_ns = now_ns();
}

void Recorder::stop() {
  detail::t_spans = nullptr;
  const int64_t now = now_ns();
  for (size_t thread = 1; thread < threads_.size(); ++thread) {
    ThreadSpans& spans = *threads_[thread];
    spans.add({.begin_ns = spans.idle_since_ns, .end_ns = now, .kind = Kind::Threads});
  }
}

ThreadSpans* Recorder::thread(int index) {
  return index >= 0 && index < num_threads() ? threads_[static_cast<size_t>(index)].get() : nullptr;
}

void Scope::begin(Kind kind, int64_t index, int64_t work) {
  span_.kind = kind;
  span_.index = static_cast<int32_t>(index);
  span_.work = work;
  span_.begin_ns = now_ns();
}

void Scope::end() {
  span_.end_ns = now_ns();
  spans_->add(span_);
}

}  // namespace lockstep::profile
