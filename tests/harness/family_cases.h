/* family_cases.h - every family of checkpoints in its usual kinds and odd shapes: the settings, and
 * the weight that they describe. */
#pragma once

#include "tests/harness/family_writer.h"

struct family_case {
    enum written_family family;
    const char *config; /* config.json */
    struct gk_desc desc;
};

extern const struct family_case family_cases[];
extern const uint32_t n_family_cases;
