#include "lockstep/comm/gather_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace lockstep::comm {

std::vector<std::string> gather_text_as_tensors(Communicator& comm, const std::string& mine, const char* what) {
  const auto size = static_cast<int64_t>(comm.size());
  at::Tensor lengths = at::zeros({size}, at::kLong);
  lengths.data_ptr<int64_t>()[comm.rank()] = static_cast<int64_t>(mine.size());
  comm.all_reduce_sum(lengths, what);
  const int64_t longest = lengths.max().item<int64_t>();
  at::Tensor shard = at::zeros({longest}, at::kByte);
  std::copy(mine.begin(), mine.end(), static_cast<char*>(shard.data_ptr()));
  at::Tensor all = at::empty({size * longest}, at::kByte);
  comm.all_gather(shard, all, what);
  std::vector<std::string> texts;
  for (int64_t peer = 0; peer < size; ++peer) {
    const char* begin = static_cast<const char*>(all.data_ptr()) + peer * longest;
    texts.emplace_back(begin, begin + lengths.data_ptr<int64_t>()[peer]);
  }
  return texts;
}

}  // namespace lockstep::comm
