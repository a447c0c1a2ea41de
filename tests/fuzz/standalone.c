/* standalone.c - a main() for fuzz targets in builds without libFuzzer.
 *
 *     fuzz-NAME FOLDER-OR-FILE...
 *
 * Runs every file as it is, then the same number of mutations of each. Mutations come from a fixed
 * seed, so that two runs of one build do the same and a crash can be repeated. GEMMD_FUZZ_SECONDS
 * makes it go on, round after round with other mutations, until that time has passed. The input of
 * a crash is not lost: it is written to crash-input before the target runs when
 * GEMMD_FUZZ_KEEP is set. Single thread. */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MUTATIONS_PER_ROUND 500
#define INPUT_BYTES_MAX     (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

struct input {
    uint8_t *bytes;
    size_t n_bytes;
};

static struct {
    struct input *inputs;
    size_t n_inputs;
    uint64_t random;
    uint64_t n_runs;
    bool is_keeping;
} fuzz = {.random = 0x9e3779b97f4a7c15u};

static void die(const char *what)
{
    fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *get_memory(void *old, size_t n_bytes)
{
    void *memory = realloc(old, n_bytes);
    if (memory == NULL) {
        die("realloc");
    }
    return memory;
}

/* xorshift64*: small, and the same everywhere. */
static uint64_t random_below(uint64_t limit)
{
    fuzz.random ^= fuzz.random >> 12;
    fuzz.random ^= fuzz.random << 25;
    fuzz.random ^= fuzz.random >> 27;
    return (fuzz.random * 0x2545f4914f6cdd1du >> 16) % limit;
}

static void keep(const uint8_t *bytes, size_t n_bytes)
{
    FILE *file = fopen("crash-input", "wb");
    if (file == NULL || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file) != 0) {
        die("crash-input");
    }
}

/* The target gets a heap block of exactly the size, so that AddressSanitizer sees one byte too far.
 */
static void run_one(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *exact = get_memory(NULL, n_bytes > 0 ? n_bytes : 1);
    memcpy(exact, bytes, n_bytes);
    if (fuzz.is_keeping) {
        keep(exact, n_bytes);
    }
    (void)LLVMFuzzerTestOneInput(exact, n_bytes);
    free(exact);
    fuzz.n_runs++;
}

static void flip(uint8_t *bytes, size_t n_bytes)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"', '{', '\\'};
    if (n_bytes == 0) {
        return;
    }
    size_t i = random_below(n_bytes);
    switch (random_below(3)) {
    case 0:
        bytes[i] ^= (uint8_t)(1u << random_below(8));
        return;
    case 1:
        bytes[i] = edges[random_below(sizeof(edges))];
        return;
    default:
        bytes[i] = (uint8_t)random_below(256);
        return;
    }
}

static size_t cut(uint8_t *bytes, size_t n_bytes)
{
    size_t from = random_below(n_bytes + 1);
    if (random_below(2) == 0) {
        return from;
    }
    size_t n_removed = random_below(n_bytes - from + 1);
    memmove(bytes + from, bytes + from + n_removed, n_bytes - from - n_removed);
    return n_bytes - n_removed;
}

static size_t insert(uint8_t *bytes, size_t n_bytes)
{
    size_t n_added = 1 + random_below(16);
    size_t at = random_below(n_bytes + 1);
    if (n_bytes + n_added > INPUT_BYTES_MAX) {
        return n_bytes;
    }
    memmove(bytes + at + n_added, bytes + at, n_bytes - at);
    for (size_t i = 0; i < n_added; i++) {
        bytes[at + i] = (uint8_t)random_below(256);
    }
    return n_bytes + n_added;
}

/* Our head, another input's tail. */
static size_t splice(uint8_t *bytes, size_t n_bytes)
{
    const struct input *other = &fuzz.inputs[random_below(fuzz.n_inputs)];
    size_t head = random_below(n_bytes + 1);
    size_t from = random_below(other->n_bytes + 1);
    size_t tail = other->n_bytes - from;
    if (head + tail > INPUT_BYTES_MAX) {
        return n_bytes;
    }
    memcpy(bytes + head, other->bytes + from, tail);
    return head + tail;
}

static size_t mutate(uint8_t *bytes, size_t n_bytes)
{
    for (uint64_t n_steps = 1 + random_below(4); n_steps > 0; n_steps--) {
        switch (random_below(6)) {
        case 0:
            n_bytes = cut(bytes, n_bytes);
            break;
        case 1:
            n_bytes = insert(bytes, n_bytes);
            break;
        case 2:
            n_bytes = splice(bytes, n_bytes);
            break;
        default:
            flip(bytes, n_bytes);
            break;
        }
    }
    return n_bytes;
}

static void run_round(uint8_t *scratch)
{
    for (size_t i = 0; i < fuzz.n_inputs; i++) {
        for (int j = 0; j < MUTATIONS_PER_ROUND; j++) {
            memcpy(scratch, fuzz.inputs[i].bytes, fuzz.inputs[i].n_bytes);
            run_one(scratch, mutate(scratch, fuzz.inputs[i].n_bytes));
        }
    }
}

static void add_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        die(path);
    }
    uint8_t *bytes = get_memory(NULL, INPUT_BYTES_MAX);
    size_t n_bytes = fread(bytes, 1, INPUT_BYTES_MAX, file);
    if (ferror(file) || !feof(file)) {
        fprintf(stderr, "fuzz: %s cannot be read or has %u bytes or more\n", path, INPUT_BYTES_MAX);
        exit(1);
    }
    fclose(file);
    fuzz.inputs = get_memory(fuzz.inputs, (fuzz.n_inputs + 1) * sizeof(*fuzz.inputs));
    fuzz.inputs[fuzz.n_inputs++] = (struct input){
        .bytes = get_memory(bytes, n_bytes > 0 ? n_bytes : 1),
        .n_bytes = n_bytes,
    };
}

/* In the order of their names: a folder's own order differs between machines. */
static void add_folder(const char *path)
{
    struct dirent **entries;
    int n_entries = scandir(path, &entries, NULL, alphasort);
    if (n_entries < 0) {
        die(path);
    }
    for (int i = 0; i < n_entries; i++) {
        char *name = NULL;
        if (entries[i]->d_name[0] != '.') {
            if (asprintf(&name, "%s/%s", path, entries[i]->d_name) < 0) {
                die("asprintf");
            }
            add_file(name);
        }
        free(name);
        free(entries[i]);
    }
    free(entries);
}

static void add_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) < 0) {
        die(path);
    }
    if (S_ISDIR(info.st_mode)) {
        add_folder(path);
        return;
    }
    add_file(path);
}

int main(int argc, char **argv)
{
    const char *seconds = getenv("GEMMD_FUZZ_SECONDS");
    time_t end = time(NULL) + (seconds != NULL ? strtol(seconds, NULL, 10) : 0);

    fuzz.is_keeping = getenv("GEMMD_FUZZ_KEEP") != NULL;
    for (int i = 1; i < argc; i++) {
        add_path(argv[i]);
    }
    if (fuzz.n_inputs == 0) {
        fprintf(stderr, "fuzz: no corpus; usage: %s FOLDER-OR-FILE...\n", argv[0]);
        return 1;
    }
    for (size_t i = 0; i < fuzz.n_inputs; i++) {
        run_one(fuzz.inputs[i].bytes, fuzz.inputs[i].n_bytes);
    }
    uint8_t *scratch = get_memory(NULL, INPUT_BYTES_MAX);
    do {
        run_round(scratch);
    } while (time(NULL) < end);
    printf("%llu inputs run, from a corpus of %zu\n", (unsigned long long)fuzz.n_runs,
           fuzz.n_inputs);

    free(scratch);
    for (size_t i = 0; i < fuzz.n_inputs; i++) {
        free(fuzz.inputs[i].bytes);
    }
    free(fuzz.inputs);
    return 0;
}
