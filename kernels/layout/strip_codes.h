/* strip_codes.h - the codes of a slice of strip.h, from canonical form and back. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"

/* strip_pack_codes() - rows first_n.. and k first_k.. of the weight, padded, to the slice's bytes,
 * all of which are written. strip_unpack_codes() - back to where they came from. */
void strip_pack_codes(const struct gk_canonical *canonical, uint32_t first_n, uint32_t first_k,
                      uint8_t *slice);
void strip_unpack_codes(const uint8_t *slice, uint32_t first_n, uint32_t first_k,
                        struct gk_canonical *canonical);
