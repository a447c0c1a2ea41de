/* test-codec-mutations.c - messages of every kind, cut at every byte and mutated: each is decoded
 * or refused in words, on a small stack. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codec_cases.h"
#include "gemmd.pb-c.h"
#include "ipc/codec.h"
#include "t.h"

#define N_SEEDS   64
#define DEPTH_MAX 8

/* T41's million; ThreadSanitizer has no threads to watch here. */
#if defined(__SANITIZE_THREAD__)
#define N_MUTATIONS 100000
#else
#define N_MUTATIONS 1000000
#endif

static bool is_answered(const uint8_t *bytes, size_t n_bytes, bool is_request)
{
    struct msg_request request;
    struct msg_reply reply = MSG_REPLY_NULL;
    struct reason why = REASON_NULL;
    int r = is_request ? codec_decode_request(bytes, n_bytes, &request, &why)
                       : codec_decode_reply(bytes, n_bytes, &reply, &why);
    msg_reply_finish(&reply);
    return r == 0 ? why.text[0] == '\0' : r == STATUS_BAD_MESSAGE && why.text[0] != '\0';
}

/* The message with a byte changed, removed or added, or cut. Returns its new length. */
static size_t mutate(uint8_t *bytes, size_t n_bytes)
{
    for (uint64_t n = 1 + random_below(4); n > 0 && n_bytes > 0; n--) {
        size_t at = random_below(n_bytes);
        switch (random_below(4)) {
        case 0:
            memmove(bytes + at, bytes + at + 1, n_bytes - at - 1);
            n_bytes--;
            break;
        case 1:
            memmove(bytes + at + 1, bytes + at, n_bytes - at - 1); /* the last one goes */
            bytes[at] = (uint8_t)random_bits();
            break;
        case 2:
            n_bytes = random_below(16) == 0 ? at : n_bytes;
            break;
        default:
            bytes[at] ^= (uint8_t)(1u << random_below(8));
            break;
        }
    }
    return n_bytes;
}

static void encode_some(uint64_t i, bool is_request, uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    struct msg_request request;
    struct msg_reply reply;
    if (is_request) {
        fill_request(&request, (enum msg_verb)(1 + i % (MSG_VERB_END - 1)));
        assert_int_equal(codec_encode_request(&request, ret_bytes, ret_n_bytes), 0);
        return;
    }
    fill_reply(&reply, (enum msg_body)(i % (MSG_BODY_EXPLANATION + 1)));
    assert_int_equal(codec_encode_reply(&reply, ret_bytes, ret_n_bytes), 0);
    msg_reply_finish(&reply);
}

/* Each cut goes into a block of its own size, so that AddressSanitizer sees a read past it. */
static void test_cut_at_every_byte(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2 * (MSG_VERB_END + MSG_BODY_EXPLANATION); i++) {
        uint8_t *bytes = NULL;
        size_t n_bytes = 0;
        encode_some(i / 2, i % 2 == 0, &bytes, &n_bytes);
        size_t step = n_bytes > 4096 ? n_bytes / 1024 : 1; /* long texts have long dull stretches */
        for (size_t n_cut = 0; n_cut < n_bytes; n_cut += n_cut < 512 ? 1 : step) {
            uint8_t *cut = malloc(n_cut > 0 ? n_cut : 1);
            memcpy(cut, bytes, n_cut);
            assert_true(is_answered(cut, n_cut, i % 2 == 0));
            free(cut);
        }
        free(bytes);
    }
}

struct seed {
    uint8_t *bytes;
    size_t n_bytes;
};

struct mutations {
    struct seed seeds[N_SEEDS];
    uint64_t n_wrong;
};

static void *run_mutations(void *argument)
{
    struct mutations *mutations = argument;
    for (uint64_t i = 0; i < N_MUTATIONS; i++) {
        const struct seed *seed = &mutations->seeds[i % N_SEEDS];
        uint8_t *bytes = malloc(seed->n_bytes + 1);
        memcpy(bytes, seed->bytes, seed->n_bytes);
        size_t n_bytes = mutate(bytes, seed->n_bytes);
        mutations->n_wrong += !is_answered(bytes, n_bytes, i % 2 == 0);
        free(bytes);
    }
    return NULL;
}

/* On a stack of 1 MiB, as T41 asks. */
static void test_mutations(void **state)
{
    (void)state;
    struct mutations mutations = {.n_wrong = 0};
    pthread_attr_t attributes;
    pthread_t thread;
    for (uint64_t i = 0; i < N_SEEDS; i++) {
        encode_some(i / 2, i % 2 == 0, &mutations.seeds[i].bytes, &mutations.seeds[i].n_bytes);
    }
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run_mutations, &mutations), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    assert_int_equal(mutations.n_wrong, 0);
    for (int i = 0; i < N_SEEDS; i++) {
        free(mutations.seeds[i].bytes);
    }
}

/* protobuf-c recurses without a limit: only a schema without cycles bounds its stack. */
static int depth_of(const ProtobufCMessageDescriptor *descriptor, int depth)
{
    int deepest = depth;
    if (depth > DEPTH_MAX) {
        return depth;
    }
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            int below = depth_of(field->descriptor, depth + 1);
            deepest = below > deepest ? below : deepest;
        }
    }
    return deepest;
}

static void test_schema_has_no_cycles(void **state)
{
    (void)state;
    assert_int_equal(depth_of(&gemmd__wire__request__descriptor, 1), 2);
    assert_int_equal(depth_of(&gemmd__wire__reply__descriptor, 1), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_schema_has_no_cycles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
