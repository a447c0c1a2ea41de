/* fake_daemon_internal.h - what the parts of the fake daemon share. All of it runs on its one
 * thread, but for the atomics. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "ipc/frame.h"
#include "ipc/lane.h"
#include "ipc/shm.h"
#include "ipc/sock.h"
#include "tests/unit/client/fake_daemon.h"

#define SESSIONS_MAX 8u
#define BUFFERS_MAX  64u
#define HELD_MAX     256u

struct fake_session {
    int fd; /* -1: free */
    struct lane lane;
    struct region buffers[BUFFERS_MAX];
};

struct held {
    struct fake_session *session;
    bool is_by_message;
    struct frame_route route;
    struct request_desc desc;
};

struct fake_daemon {
    char dir[64];
    _Atomic uint32_t quirks;
    _Atomic bool is_stopping;
    pthread_t thread;
    bool is_running;
    int listen_fd;
    struct sock router;
    struct fake_session sessions[SESSIONS_MAX];
    struct held held[HELD_MAX];
    uint32_t n_held;
};

/* fake_has() - is one of these quirks set? fake_be_late() - wait until it is not. */
bool fake_has(const struct fake_daemon *fake, uint32_t quirk);
void fake_be_late(const struct fake_daemon *fake, uint32_t quirk);

/* fake_look_at_router() - answer all that the control socket has. fake_look_at_lane() - the same
 * for a session's ring. fake_look_at_session() - and its socket; fake_end_session() - forget it.
 * fake_release_held() - serve the requests that were held back, unless FAKE_HOLD is still set. */
void fake_look_at_router(struct fake_daemon *fake);
void fake_look_at_lane(struct fake_daemon *fake, struct fake_session *session);
void fake_look_at_session(struct fake_daemon *fake, struct fake_session *session);
void fake_end_session(struct fake_daemon *fake, struct fake_session *session);
void fake_release_held(struct fake_daemon *fake);
