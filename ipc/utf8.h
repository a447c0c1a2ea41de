/* utf8.h - is this text? */
#pragma once

#include <stddef.h>

/* utf8_valid_bytes() - length of the longest prefix of text that is whole, valid UTF-8 (RFC 3629:
 * no overlong forms, no surrogates, nothing above U+10FFFF). n_bytes if all of it is. */
size_t utf8_valid_bytes(const char *text, size_t n_bytes);

/* utf8_mend() - put a '?' in the place of each byte that is in no valid sequence. */
void utf8_mend(char *text, size_t n_bytes);
