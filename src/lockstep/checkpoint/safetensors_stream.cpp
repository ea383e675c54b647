#include "lockstep/checkpoint/safetensors_stream.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/safetensors_header.h"

#include <algorithm>

namespace lockstep::checkpoint {

int64_t TensorPlan::num_bytes() const {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) bytes *= size;
  return bytes;
}

void sort_for_file(std::vector<TensorPlan>& plans) {
  std::sort(plans.begin(), plans.end(), [](const TensorPlan& a, const TensorPlan& b) {
    const int rank_a = tensor::detail::dtype_rank(a.dtype);
    const int rank_b = tensor::detail::dtype_rank(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
}

SafetensorsStream::SafetensorsStream(const std::filesystem::path& path, std::vector<TensorPlan> plans,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), plans_(std::move(plans)) {
  std::vector<tensor::detail::HeaderLine> lines;
  for (const TensorPlan& plan : plans_) {
    lines.push_back({plan.name, plan.dtype, plan.shape, static_cast<size_t>(plan.num_bytes())});
  }
  const std::string header = tensor::detail::format_safetensors_header(lines, metadata);
  const uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsStream::append(const at::Tensor& tensor) {
  LS_CHECK(next_ < plans_.size(), "{} tensors planned", plans_.size());
  const TensorPlan& plan = plans_[next_++];
  LS_CHECK(tensor.sizes().vec() == plan.shape, "{}: another shape than planned", plan.name);
  const at::Tensor stored = tensor.to(plan.dtype).contiguous();
  file_.write({static_cast<const std::byte*>(stored.const_data_ptr()), stored.nbytes()});
}

void SafetensorsStream::commit() {
  LS_CHECK(next_ == plans_.size(), "{} of {} tensors written", next_, plans_.size());
  file_.commit();
}

}  // namespace lockstep::checkpoint
