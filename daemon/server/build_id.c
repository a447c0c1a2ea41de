/* build_id.c - see build_id.h. The digest is a note in the program's own loaded segments. */
#include "daemon/server/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/check.h"
#include "ipc/base/num.h"

#define DIGEST_BYTES_MAX 32u

static char text[2 * DIGEST_BYTES_MAX + 1] = "unknown";

static void format(const uint8_t *digest, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes && i < DIGEST_BYTES_MAX; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
}

/* Notes lie one behind the other, name and descriptor padded to words. */
static bool read_notes(const uint8_t *at, const uint8_t *end)
{
    while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)at;
        const uint8_t *name = at + sizeof(*note);
        const uint8_t *digest = name + num_align_up(note->n_namesz, 4);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof("GNU") &&
            memcmp(name, "GNU", sizeof("GNU")) == 0) {
            format(digest, note->n_descsz);
            return true;
        }
        at = digest + num_align_up(note->n_descsz, 4);
    }
    return false;
}

/* The program itself comes first; nothing else is looked at. */
static int on_object(struct dl_phdr_info *info, GD_UNUSED size_t size_bytes, GD_UNUSED void *arg)
{
    for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uint8_t *begin = (const uint8_t *)(info->dlpi_addr + header->p_vaddr);
        if (header->p_type == PT_NOTE && read_notes(begin, begin + header->p_memsz)) {
            break;
        }
    }
    return 1;
}

const char *build_id(void)
{
    static bool is_read;
    if (!is_read) {
        (void)dl_iterate_phdr(on_object, NULL);
        is_read = true;
    }
    return text;
}
