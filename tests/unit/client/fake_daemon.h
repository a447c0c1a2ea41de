/* fake_daemon.h - a daemon in a thread, for tests of the client: session socket, lanes and ROUTER
 * made with ipc's own functions, one weight, and a product that anybody can foresee. It can
 * misbehave in every way a real one must not. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define FAKE_LANE_ENTRIES 16u
#define FAKE_N            4u /* the weight's shape; y[row][i] = 2 x[row][i]; x may be I8 with scales */
#define FAKE_K            4u
#define FAKE_ROWS_MAX     4u

/* Bits of fake_daemon.quirks. */
enum fake_quirk {
    FAKE_HANG_UP = 1 << 0,        /* close a session instead of answering it */
    FAKE_REFUSE = 1 << 1,         /* answer QUOTA to every question on the session socket */
    FAKE_REFUSE_WITH_OK = 1 << 2, /* a refusal with status 0 */
    FAKE_WRONG_VERSION = 1 << 3,  /* welcome with version 99 */
    FAKE_WRONG_TYPE = 1 << 4,     /* answer everything with a welcome */
    FAKE_NO_FDS = 1 << 5,         /* lanes and buffers without their fds */
    FAKE_SMALL_REGION = 1 << 6,   /* a buffer of one page, whatever was asked for */
    FAKE_LATE_ANSWER = 1 << 7,    /* no answer on the session socket until this is cleared */
    FAKE_LATE_REPLY = 1 << 8,     /* no control reply until this is cleared */
    FAKE_NO_REPLY = 1 << 9,       /* say nothing on the control socket */
    FAKE_GARBAGE_REPLY = 1 << 10, /* bytes that are no protobuf */
    FAKE_WRONG_BODY = 1 << 11,    /* a reply to PING, whatever was asked */
    FAKE_WRONG_STATUS = 1 << 12,  /* a status that no daemon has */
    FAKE_HOLD = 1 << 13,          /* keep requests, and let jobs run, until this is cleared */
    FAKE_REFUSE_REQUEST =
        1 << 14,                 /* end requests and jobs with INVALID_ARGUMENT and FAKE_SENTENCE */
    FAKE_CORRUPT_RING = 1 << 15, /* overwrite the completion ring's tail */
    FAKE_FOREIGN_RESULT = 1 << 16, /* before each result, one for a request nobody made */
    FAKE_NO_READING = 1 << 17,     /* leave in the lanes what is there, until this is cleared */
    FAKE_LATE_LANE = 1 << 18,      /* no answer to the opening of a lane until this is cleared */
    FAKE_SAYS_GONE = 1 << 19,      /* answer every message that it is DISCONNECTED */
};

#define FAKE_SENTENCE "n 5 is not the weight's 4: it was reloaded with another shape"

struct fake_daemon;

/* fake_new() - start one in a folder of its own. fake_free() - stop it, remove the folder; NULL is
 * fine. fake_die() - end its thread and close its sockets, as a crash does; fake_free() is still
 * due. fake_rise() - after that, start another in the same folder, with the same quirks. fake_set()
 * - from now on these quirks and no others. fake_dir() - the folder. Any thread. */
struct fake_daemon *fake_new(void);
struct fake_daemon *fake_free(struct fake_daemon *fake);
void fake_die(struct fake_daemon *fake);
void fake_rise(struct fake_daemon *fake);
void fake_set(struct fake_daemon *fake, uint32_t quirks);
const char *fake_dir(const struct fake_daemon *fake);
