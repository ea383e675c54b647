#include "lockstep/comm/communicator.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

#include <cstdlib>

namespace lockstep::comm {

Carrier carrier_from_name(std::string_view name) {
  if (name == "auto") return Carrier::Auto;
  if (name == "shm") return Carrier::SharedMemory;
  if (name == "shm-rings") return Carrier::SharedRings;
  if (name == "gloo") return Carrier::Gloo;
  if (name == "gloo-raw") return Carrier::GlooRaw;
  if (name == "gloo-packed") return Carrier::GlooPacked;
  throw Error::usage("environment variable LOCKSTEP_COMM = {}: must be auto, shm, shm-rings, gloo, gloo-raw or gloo-packed.", name);
}

Carrier carrier_of_environment() {
  const char* name = std::getenv("LOCKSTEP_COMM");
  return carrier_from_name(name != nullptr && *name != '\0' ? name : "auto");
}

std::unique_ptr<Communicator> make_processes(GlooOptions options, Carrier carrier) {
  if (carrier == Carrier::GlooRaw) options.wire = Wire::Raw;
  if (carrier == Carrier::GlooPacked) options.wire = Wire::Packed;
  std::unique_ptr<Communicator> gloo = make_gloo(options);
  // What one rank asks for alone must not make the others wait for it.
  for (const std::string& theirs : gloo->all_gather_text(std::to_string(static_cast<int>(carrier)), "LOCKSTEP_COMM")) {
    if (theirs == std::to_string(static_cast<int>(carrier))) continue;
    throw Error::usage("environment variable LOCKSTEP_COMM differs between the processes. Give all the same, or none.");
  }
  const bool only_rings = carrier == Carrier::SharedRings;
  if (carrier != Carrier::Auto && carrier != Carrier::SharedMemory && !only_rings) {
    log::debug("comm", "tensors travel by gloo (LOCKSTEP_COMM)");
    return gloo;
  }
  SharedMemoryResult made = make_shared_memory(std::move(gloo), only_rings);
  if (made.why_not.empty()) {
    log::debug("comm", "tensors travel through shared memory");
  } else if (carrier != Carrier::Auto) {
    throw Error::environment("environment variable LOCKSTEP_COMM = {}, but the processes cannot share memory: {}. Use auto.",
                             only_rings ? "shm-rings" : "shm", made.why_not);
  } else {
    log::debug("comm", "tensors travel by gloo: {}", made.why_not);
  }
  return std::move(made.comm);
}

}  // namespace lockstep::comm
