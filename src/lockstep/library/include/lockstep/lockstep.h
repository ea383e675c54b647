#pragma once

/// lockstep for C++ programs: data, tokenizer, model, arguments, Trainer, and the processes of the job. No header of libtorch is
/// needed. Errors are lockstep::Error (a std::runtime_error with a kind and an exit code); nothing here ends the process.
#include "lockstep/base/error.h"
#include "lockstep/library/callback.h"
#include "lockstep/library/classifier.h"
#include "lockstep/library/dataset.h"
#include "lockstep/library/distributed.h"
#include "lockstep/library/loss.h"
#include "lockstep/library/tokenizer.h"
#include "lockstep/library/trainer.h"
#include "lockstep/library/training_arguments.h"
