/* utf8.c - UTF-8 by the table of well-formed byte sequences (Unicode 15, table 3-7). protobuf-c
 * checks nothing, other protobuf libraries refuse a whole message for one wrong byte. */
#include "ipc/utf8.h"

#include <stdint.h>

struct lead {
    uint8_t first, last;            /* range of the first byte */
    uint8_t second_min, second_max; /* all later bytes: 80..bf */
    uint8_t n_bytes;
};

static const struct lead leads[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

static const struct lead *find_lead(uint8_t byte)
{
    for (size_t i = 0; i < sizeof(leads) / sizeof(leads[0]); i++) {
        if (byte >= leads[i].first && byte <= leads[i].last) {
            return &leads[i];
        }
    }
    return NULL;
}

/* Length of the sequence at text, 0 if it is not well-formed. ASCII, which is nearly everything,
 * needs no table. */
static size_t sequence_bytes(const uint8_t *text, size_t n_bytes)
{
    if (text[0] < 0x80) {
        return 1;
    }
    const struct lead *lead = find_lead(text[0]);
    if (lead == NULL || lead->n_bytes > n_bytes) {
        return 0;
    }
    if (text[1] < lead->second_min || text[1] > lead->second_max) {
        return 0;
    }
    for (size_t i = 2; i < lead->n_bytes; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf) {
            return 0;
        }
    }
    return lead->n_bytes;
}

size_t utf8_valid_bytes(const char *text, size_t n_bytes)
{
    size_t n_valid = 0;
    while (n_valid < n_bytes) {
        size_t n = sequence_bytes((const uint8_t *)text + n_valid, n_bytes - n_valid);
        if (n == 0) {
            break;
        }
        n_valid += n;
    }
    return n_valid;
}

void utf8_mend(char *text, size_t n_bytes)
{
    for (size_t i = 0; (i += utf8_valid_bytes(text + i, n_bytes - i)) < n_bytes; i++) {
        text[i] = '?';
    }
}
