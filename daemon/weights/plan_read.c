/* A part is read whole even where a piece of it is kept: pieces of k lie scattered over the file.
 */
#include "daemon/weights/plan_read.h"

#include "daemon/weights/module_read.h"
#include "ipc/base/clock.h"

static int cut(const struct plan_part *part, const struct gk_canonical *whole,
               struct gk_canonical *ret_piece, struct reason *why)
{
    int r = part->axis == SHAPING_N
                ? gk_canonical_slice_n(whole, part->first, part->count, ret_piece, why)
                : gk_canonical_slice_k(whole, part->first, part->count, ret_piece, why);
    if (r > 0) {
        reason_prefix(why, "module '%s'", part->module->name);
    }
    return r;
}

/* module_read() or module_read_rest(). */
typedef int (*reader)(const struct module *module, struct progress *progress,
                      struct warnings *warnings, struct gk_canonical *ret_canonical,
                      struct reason *why);

static int read_part(const struct plan_part *part, reader read, struct progress *progress,
                     struct warnings *warnings, struct gk_canonical *ret_piece, struct reason *why)
{
    struct gk_canonical whole;
    int r = read(part->module, progress, warnings, &whole, why);
    if (r != 0) {
        return r;
    }
    if (part->axis == SHAPING_WHOLE) {
        *ret_piece = whole;
        return 0;
    }
    uint64_t start_nsec = clock_now_nsec();
    r = cut(part, &whole, ret_piece, why);
    (void)progress_spend(progress, MSG_LOAD_PACK, start_nsec);
    gk_canonical_finish(&whole);
    return r;
}

static int fuse(const struct plan_item *item, const struct gk_canonical *parts,
                struct gk_canonical *ret_canonical, struct reason *why)
{
    int r = gk_canonical_concat_n(parts, item->n_parts, ret_canonical, why);
    if (r > 0) {
        reason_prefix(why, "weight '%s'", item->name);
    }
    return r;
}

static int read_item(const struct plan_item *item, reader read, struct progress *progress,
                     struct warnings *warnings, struct gk_canonical *ret_canonical,
                     struct reason *why)
{
    struct gk_canonical parts[SHAPING_PARTS_MAX];
    uint32_t n_read = 0;
    int r = 0;
    while (r == 0 && n_read < item->n_parts) {
        r = read_part(&item->parts[n_read], read, progress, warnings, &parts[n_read], why);
        n_read += r == 0;
    }
    if (r == 0 && n_read == 1) {
        *ret_canonical = parts[0];
        return 0;
    }
    if (r == 0) {
        uint64_t start_nsec = clock_now_nsec();
        r = fuse(item, parts, ret_canonical, why);
        (void)progress_spend(progress, MSG_LOAD_PACK, start_nsec);
    }
    for (uint32_t i = 0; i < n_read; i++) {
        gk_canonical_finish(&parts[i]);
    }
    return r;
}

int plan_read(const struct plan_item *item, struct progress *progress, struct warnings *warnings,
              struct gk_canonical *ret_canonical, struct reason *why)
{
    return read_item(item, module_read, progress, warnings, ret_canonical, why);
}

int plan_read_rest(const struct plan_item *item, struct progress *progress,
                   struct warnings *warnings, struct gk_canonical *ret_canonical,
                   struct reason *why)
{
    return read_item(item, module_read_rest, progress, warnings, ret_canonical, why);
}
