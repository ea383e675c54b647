#pragma once

#include "lockstep/options/field.h"

#include <string_view>

/// The arguments inside an argument: `--lr_scheduler_kwargs '{"num_cycles": 2}'` and `--optim_args "momentum=0.9"`.
/// Both fill an option struct (options/field.h), so names, defaults and ranges are declared once. Torch-free.
namespace lockstep::optim {

/// Whose arguments they are: flag "lr_scheduler_kwargs", owner "cosine".
struct ArgumentSource {
  std::string_view flag;
  std::string_view owner;
};

/// A JSON object. Numbers and booleans may also be written as texts, as transformers reads them. Of a key that comes twice
/// the last value counts; options/check.h has refused that before.
/// Throws Error{Usage} naming the flag, the key and the value; an unknown key with the nearest known one.
void read_json_arguments(std::string_view json, const options::Fields& fields, const ArgumentSource& source);

/// "key=value, key=value"; spaces do not count. Throws as above, and for a key that comes twice.
void read_assignments(std::string_view text, const options::Fields& fields, const ArgumentSource& source);

}  // namespace lockstep::optim
