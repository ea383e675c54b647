#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::metrics {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

/// As TFRecord stores it: rotated right by 15 bits, plus 0xA282EAD8, so that the check of a text that holds checks of
/// its own stays a good one.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::metrics
