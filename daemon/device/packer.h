/* packer.h - packing a weight on the device that will hold it: codes go over as the checkpoint has
 * them, in chunks, and the device makes its own layout of them. Only where device_ops.packing is
 * there; the alternative everywhere is gk_layout.pack() into a view of the region, with the same
 * bytes.
 *
 * For each weight: begin(), then chunk() and send() for all of its codes, then pack(). A packer
 * belongs to one thread; a device may have several. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/shm.h"

#define PACKER_CHUNK_BYTES (UINT64_C(4) << 20)

struct device;
struct packer;

struct packer_ops {
    /* packer_new() - page-locked memory and a stream. 0, -ENOMEM or a status. packer_free() waits
     * for what is in flight, and may keep the packer for the next who wants one; NULL in, NULL out.
     */
    int (*packer_new)(struct device *device, struct packer **ret_packer, struct reason *why);
    struct packer *(*packer_free)(struct packer *packer);

    /* begin() - room for size_bytes of codes. Addresses from *ret_base on are the device's, for
     * gk_codes.bytes. */
    int (*begin)(struct packer *packer, uint64_t size_bytes, const void **ret_base,
                 struct reason *why);
    /* chunk() - PACKER_CHUNK_BYTES to be filled; waits until one is free. send() - its first
     * n_bytes to that offset of the room, in the background. */
    int (*chunk)(struct packer *packer, void **ret_bytes, struct reason *why);
    int (*send)(struct packer *packer, uint64_t offset, uint64_t n_bytes, struct reason *why);

    /* pack() - into a region that is still zeroed, to its end. rest: without codes, in CPU memory;
     * codes: ascending in to_n, together all rows. STATUS_BAD_CHECKPOINT: there are NaN among FP8
     * codes, and what the region holds is no weight. */
    int (*pack)(struct packer *packer, const struct gk_canonical *rest,
                const struct gk_codes *codes, uint32_t n_codes, const struct region *region,
                struct reason *why);
};
