/* checkpoint.h - the demo's own reader of a GPTQ checkpoint: one safetensors file, 4 bit, v1
 * layout. It reads what the demo's checkpoint has and refuses the rest; the daemon's loader is the
 * strict one. */
#ifndef DEPLOY_DEMO_CHECKPOINT_H
#define DEPLOY_DEMO_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One quantised linear layer; pointers go into the mapped file. */
struct layer {
    char name[256];
    uint32_t n;              /* out features */
    uint32_t k;              /* in features */
    uint32_t n_groups;       /* groups of k / n_groups inputs share a scale */
    const uint32_t *qweight; /* (k / 8, n): 8 codes of neighbouring k, the lowest bits first */
    const uint32_t *qzeros;  /* (n_groups, n / 8): zero points less one, packed along n */
    const uint16_t *scales;  /* (n_groups, n) f16 */
    const uint16_t *bias;    /* (n) f16, or NULL */
};

struct checkpoint {
    void *map;
    size_t map_bytes;
    struct layer *layers;
    size_t n_layers;
};

/* checkpoint_open() - map FOLDER/model.safetensors and find its layers.
 * Return: true with *ret_checkpoint, to be given to checkpoint_close(); false after saying why on
 * standard error. */
bool checkpoint_open(const char *folder, struct checkpoint *ret_checkpoint);
void checkpoint_close(struct checkpoint *checkpoint);

/* layer_weight() - element (i_n, i_k) of the dequantised weight: exact, as f16 times a small
 * integer is. */
double layer_weight(const struct layer *layer, uint32_t i_n, uint32_t i_k);

#endif
