/* host_codes.h - the codes of one panel of "host-n64": columns of k codes against k rows of 64.
 *
 * A row of 8-bit codes is 64 bytes, of plain ones 64 elements, in the order of the columns. A row
 * of 4-bit codes is 16 little-endian words of 16 bits; word i holds the codes of columns i, 16 + i,
 * 32
 * + i and 48 + i in its four nibbles, low first: AVX-512 widens the words to sixteen lanes and
 * finds the code of column 16 * j + lane in nibble j of each; AVX2 looks the nibbles up as bytes.
 */
#pragma once

#include <stdint.h>

#include "gk/gk.h"

#define HOST_PANEL_N 64u /* columns */

/* host_codes_bytes() - a code of the canonical form. */
uint32_t host_codes_bytes(enum gk_code code);

/* host_codes_pack() - columns: (n_columns, k) as in the canonical form; rows: k rows of the panel,
 * zeroed by the caller, which leaves padding columns zero. _unpack() the other way. */
void host_codes_pack(const struct gk_desc *desc, const void *columns, uint32_t n_columns,
                     void *rows);
void host_codes_unpack(const struct gk_desc *desc, const void *rows, uint32_t n_columns,
                       void *columns);
