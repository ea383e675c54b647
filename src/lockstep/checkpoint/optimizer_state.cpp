#include "lockstep/checkpoint/optimizer_state.h"

#include "lockstep/checkpoint/safetensors_stream.h"

#include <memory>

namespace lockstep::checkpoint {

void save_optimizer_state(const tensor::ParamLayout& layout, int64_t step,
                          const std::function<std::vector<StateTensor>(tensor::ParamId)>& states,
                          const std::function<at::Tensor(tensor::ParamId, const std::string& name)>& gather,
                          bool writes, const std::filesystem::path& path) {
  std::vector<TensorPlan> plans;
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    for (const StateTensor& state : states(id)) {
      plans.push_back({layout.spec(id).name + "." + state.name, at::kFloat, state.shape});
    }
  }
  sort_for_file(plans);
  std::unique_ptr<SafetensorsStream> stream;
  if (writes) {
    stream = std::make_unique<SafetensorsStream>(
        path, plans,
        std::map<std::string, std::string>{{"format", "lockstep-optimizer-1"}, {"step", std::to_string(step)}});
  }
  for (const TensorPlan& plan : plans) {
    const size_t dot = plan.name.rfind('.');
    const at::Tensor whole = gather(layout.find(plan.name.substr(0, dot)), plan.name.substr(dot + 1));
    if (stream) stream->append(whole);
  }
  if (stream) stream->commit();
}

}  // namespace lockstep::checkpoint
