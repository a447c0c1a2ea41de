/* config_number.h - numbers of the configuration, from text. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* config_number() - digits of that base, 8 or 10, and nothing else. config_bytes() - decimal ones
 * with an optional K, M, G or T behind them, powers of 1024. false: text is none, or the number is
 * over 64 bits. */
bool config_number(const char *text, unsigned base, uint64_t *ret_value);
bool config_bytes(const char *text, uint64_t *ret_value);
