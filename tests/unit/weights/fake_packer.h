/* fake_packer.h - a device that packs by itself, as a GPU does, on the CPU: codes are found by the
 * formulas of each order, written for the tests. */
#pragma once

#include "tests/unit/weights/fake_device.h"

/* What the packers of the program do. */
struct fake_packing {
    _Atomic uint32_t n_packed;
    _Atomic uint32_t n_packers;     /* alive */
    _Atomic int32_t n_packers_left; /* packer_new() fails when this many more have been made */
    _Atomic bool has_no_room;       /* begin() is refused with NO_SPACE */
};
extern struct fake_packing fake_packing;

/* fake_packer_init() - a fake_device_init() with packing; fake_packing starts anew. */
void fake_packer_init(struct fake_device *fake);
