#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::model {

/// Which model is trained and in which form it is stored. Members are named as the flags of trl; the initialisers
/// are its defaults. visit() is written in the words of options/field.h.
struct ModelOptions {
  std::optional<std::string> model_name_or_path;
  std::string dtype = "float32";  ///< of the saved folder; "auto" = as the model was stored

  std::string model_revision = "main";
  std::optional<std::string> attn_implementation;
  bool trust_remote_code = false;
  std::optional<std::string> model_init_kwargs;
  std::optional<double> router_aux_loss_coef;
  bool use_cache = false;
  std::optional<double> neftune_noise_alpha;

  bool use_peft = false;
  int64_t lora_r = 16;
  int64_t lora_alpha = 32;
  double lora_dropout = 0.05;
  std::optional<std::vector<std::string>> lora_target_modules;
  std::optional<std::vector<std::string>> lora_target_parameters;
  std::optional<std::vector<std::string>> lora_modules_to_save;
  std::string lora_task_type = "CAUSAL_LM";
  bool use_rslora = false;
  bool use_dora = false;

  bool load_in_8bit = false;
  bool load_in_4bit = false;
  std::string bnb_4bit_quant_type = "nf4";
  bool use_bnb_nested_quant = false;
  std::optional<std::string> bnb_4bit_quant_storage;

  template <class V>
  void visit(V& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "The model's folder, as Hugging Face stores it.").unit("path");
    v("dtype", dtype, "Type of the saved weights; auto: as the model was stored.")
        .choices({"auto", "float32", "bfloat16", "float16"});
    v("model_revision", model_revision, "Revision of a model on the Hub.")
        .refused("models are local folders", "Fetch that revision and give its folder with --model_name_or_path.");
    v("attn_implementation", attn_implementation, "Which attention code transformers uses.")
        .no_object("there is one attention, computed per document without padding");
    v("trust_remote_code", trust_remote_code, "Run Python code from the model's folder.")
        .no_object("code from a model's folder is never run");
    v("model_init_kwargs", model_init_kwargs, "Extra arguments of from_pretrained.")
        .json()
        .refused("there is no from_pretrained", "Use --dtype for the type of the saved weights.");
    v("router_aux_loss_coef", router_aux_loss_coef,
      "Weight of the load-balancing loss of a mixture of experts; unset: router_aux_loss_coef of config.json, where "
      "output_router_logits is true there.")
        .at_least(0);
    v("use_cache", use_cache, "Keep keys and values for generation.").no_object("training keeps no such cache");
    v("neftune_noise_alpha", neftune_noise_alpha, "Noise on the embeddings (NEFTune).")
        .refused("NEFTune is not there yet", "Leave it out.");
    v("use_peft", use_peft, "Train LoRA adapters.")
        .refused("LoRA is not there yet", "Leave it out: the whole model is trained.");
    v("lora_r", lora_r, "Rank of the adapters.").no_object(kNoLora);
    v("lora_alpha", lora_alpha, "Scale of the adapters.").no_object(kNoLora);
    v("lora_dropout", lora_dropout, "Dropout of the adapters.").no_object(kNoLora);
    v("lora_target_modules", lora_target_modules, "Layers that get adapters.").no_object(kNoLora);
    v("lora_target_parameters", lora_target_parameters, "Parameters that get adapters.").no_object(kNoLora);
    v("lora_modules_to_save", lora_modules_to_save, "Layers trained in full beside adapters.").no_object(kNoLora);
    v("lora_task_type", lora_task_type, "Task of the adapters.").no_object(kNoLora);
    v("use_rslora", use_rslora, "Scale adapters by the root of their rank.").no_object(kNoLora);
    v("use_dora", use_dora, "Adapters with separate magnitudes.").no_object(kNoLora);
    v("load_in_8bit", load_in_8bit, "Quantise the frozen weights to 8 bits.").refused(kNoQuant, kUnquantised);
    v("load_in_4bit", load_in_4bit, "Quantise the frozen weights to 4 bits.").refused(kNoQuant, kUnquantised);
    v("bnb_4bit_quant_type", bnb_4bit_quant_type, "Kind of 4-bit numbers.").no_object(kNoQuant);
    v("use_bnb_nested_quant", use_bnb_nested_quant, "Quantise the scales too.").no_object(kNoQuant);
    v("bnb_4bit_quant_storage", bnb_4bit_quant_storage, "Storage type of 4-bit weights.").no_object(kNoQuant);
  }

 private:
  static constexpr const char* kNoLora = "it belongs to --use_peft, which is not there yet";
  static constexpr const char* kNoQuant = "quantised weights are not there yet";
  static constexpr const char* kUnquantised = "Leave it out: the weights are trained as they are.";
};

}  // namespace lockstep::model
