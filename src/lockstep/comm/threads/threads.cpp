#include "lockstep/comm/communicator.h"

#include "lockstep/base/error.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/max.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace lockstep::comm {
namespace {

/// What the ranks share. A collective is: publish my tensor, meet, compute my part from everyone's, meet again.
class Meeting {
 public:
  Meeting(int size, Milliseconds timeout) : size_(size), timeout_(timeout), tensors_(size), texts_(size), here_(size) {}

  int size() const { return size_; }
  Milliseconds timeout() const { return timeout_; }

  void publish(int rank, const at::Tensor& tensor) { tensors_[static_cast<size_t>(rank)] = tensor; }
  void publish(int rank, const std::string& text) { texts_[static_cast<size_t>(rank)] = text; }
  const at::Tensor& tensor(int rank) const { return tensors_[static_cast<size_t>(rank)]; }
  const std::vector<std::string>& texts() const { return texts_; }

  /// Returns when all ranks are here. A rank that leaves (its communicator is destroyed) breaks the meeting.
  void meet(int rank, const char* what) {
    std::unique_lock lock(mutex_);
    if (broken_) throw Error::peer("{}: {}", what, why_broken_);
    here_[static_cast<size_t>(rank)] = true;
    const uint64_t round = round_;
    if (++num_here_ == size_) {
      num_here_ = 0;
      std::fill(here_.begin(), here_.end(), false);
      ++round_;
      changed_.notify_all();
      return;
    }
    const bool met = changed_.wait_for(lock, timeout_, [&] { return round_ != round || broken_; });
    if (round_ != round) return;
    if (!met) fail(fmt::format("rank(s) {} did not come to '{}' within {} ms", missing(), what, timeout_.count()));
    if (!met) throw Error::timeout("{}: {}", what, why_broken_);
    throw Error::peer("{}: {}", what, why_broken_);
  }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    fail(fmt::format("rank {} left", rank));
  }

 private:
  void fail(std::string why) {
    if (broken_) return;
    broken_ = true;
    why_broken_ = std::move(why);
    changed_.notify_all();
  }
  std::string missing() const {
    std::string list;
    for (int rank = 0; rank < size_; ++rank) {
      if (!here_[static_cast<size_t>(rank)]) list += fmt::format("{}{}", list.empty() ? "" : " ", rank);
    }
    return list;
  }

  const int size_;
  const Milliseconds timeout_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::string> texts_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::vector<bool> here_;
  int num_here_ = 0;
  uint64_t round_ = 0;
  bool broken_ = false;
  std::string why_broken_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  ~ThreadCommunicator() override { meeting_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }
  Milliseconds timeout() const override { return meeting_->timeout(); }

  void all_reduce_sum(at::Tensor& values, const char* what) override {
    all_reduce(values, what, [](at::Tensor& sum, const at::Tensor& next) { sum.add_(next); });
  }
  void all_reduce_max(at::Tensor& values, const char* what) override {
    all_reduce(values, what, [](at::Tensor& sum, const at::Tensor& next) { sum.copy_(at::max(sum, next)); });
  }
  void reduce_scatter_sum(at::Tensor& values, at::Tensor& shard, const char* what) override {
    const int64_t n = shard.numel();
    LS_CHECK(values.numel() == n * size(), "{}: {} elements, shards of {}, {} ranks", what, values.numel(), n, size());
    meeting_->publish(rank_, values);
    meeting_->meet(rank_, what);
    at::Tensor sum = meeting_->tensor(0).narrow(0, rank_ * n, n).clone();
    for (int peer = 1; peer < size(); ++peer) sum.add_(meeting_->tensor(peer).narrow(0, rank_ * n, n));
    meeting_->meet(rank_, what);
    shard.copy_(sum);
  }
  void all_gather(const at::Tensor& shard, at::Tensor& values, const char* what) override {
    const int64_t n = shard.numel();
    LS_CHECK(values.numel() == n * size(), "{}: {} elements, shards of {}, {} ranks", what, values.numel(), n, size());
    meeting_->publish(rank_, shard);
    meeting_->meet(rank_, what);
    for (int peer = 0; peer < size(); ++peer) {
      at::Tensor slice = values.narrow(0, peer * n, n);
      if (slice.data_ptr() != meeting_->tensor(peer).data_ptr()) slice.copy_(meeting_->tensor(peer));
    }
    meeting_->meet(rank_, what);
  }
  void broadcast(at::Tensor& values, int root, const char* what) override {
    meeting_->publish(rank_, values);
    meeting_->meet(rank_, what);
    if (rank_ != root) values.copy_(meeting_->tensor(root));
    meeting_->meet(rank_, what);
  }
  std::vector<std::string> all_gather_text(const std::string& mine, const char* what) override {
    meeting_->publish(rank_, mine);
    meeting_->meet(rank_, what);
    std::vector<std::string> all = meeting_->texts();
    meeting_->meet(rank_, what);
    return all;
  }
  void barrier(const char* what) override { meeting_->meet(rank_, what); }

 private:
  template <class Combine>
  void all_reduce(at::Tensor& values, const char* what, Combine combine) {
    meeting_->publish(rank_, values);
    meeting_->meet(rank_, what);
    at::Tensor sum = meeting_->tensor(0).clone();
    for (int peer = 1; peer < size(); ++peer) combine(sum, meeting_->tensor(peer));
    meeting_->meet(rank_, what);
    values.copy_(sum);
  }

  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_threads(int size, Milliseconds timeout) {
  LS_CHECK(size >= 1, "size = {}", size);
  auto meeting = std::make_shared<Meeting>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<ThreadCommunicator>(meeting, rank));
  return ranks;
}

}  // namespace lockstep::comm
