#pragma once

/// What liblockstep.so shows; everything else in it is hidden.
#define LOCKSTEP_API __attribute__((visibility("default")))
