#include "lockstep/comm/recorded.h"

#include "lockstep/base/profile.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace lockstep::comm {
namespace {

using profile::Kind;
using profile::Scope;

class RecordedCommunicator final : public Communicator {
 public:
  explicit RecordedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Milliseconds timeout() const override { return inner_->timeout(); }

  void all_reduce_sum(at::Tensor& values, const char* what) override {
    const Scope span(Kind::Peers);
    inner_->all_reduce_sum(values, what);
  }
  void all_reduce_max(at::Tensor& values, const char* what) override {
    const Scope span(Kind::Peers);
    inner_->all_reduce_max(values, what);
  }
  void reduce_scatter_sum(at::Tensor& values, at::Tensor& shard, const char* what) override {
    const Scope span(Kind::ReduceScatter, [&] { return values.nbytes() - shard.nbytes(); });
    inner_->reduce_scatter_sum(values, shard, what);
  }
  void all_gather(const at::Tensor& shard, at::Tensor& values, const char* what) override {
    const Scope span(Kind::AllGather, [&] { return values.nbytes() - shard.nbytes(); });
    inner_->all_gather(shard, values, what);
  }
  void broadcast(at::Tensor& values, int root, const char* what) override {
    const Scope span(Kind::Peers);
    inner_->broadcast(values, root, what);
  }
  std::vector<std::string> all_gather_text(const std::string& mine, const char* what) override {
    const Scope span(Kind::Peers);
    return inner_->all_gather_text(mine, what);
  }
  void barrier(const char* what) override {
    const Scope span(Kind::Peers);
    inner_->barrier(what);
  }
  std::vector<at::Tensor> share_bytes(int64_t bytes, const char* what) override { return inner_->share_bytes(bytes, what); }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace

std::unique_ptr<Communicator> make_recorded(std::unique_ptr<Communicator> inner) {
  return std::make_unique<RecordedCommunicator>(std::move(inner));
}

}  // namespace lockstep::comm
