/* status.h - every outcome that can cross a process boundary, in one list.
 *
 * A status is a positive int whose high byte is its category, so that a caller may switch on the
 * category alone. The values are part of the wire protocol and of the client ABI: a number is never
 * reused. client/include/gemmd.h repeats them for users; client/status.c asserts that both agree.
 */
#pragma once

enum status_category {
    STATUS_CATEGORY_NONE = 0x0,
    STATUS_CATEGORY_USAGE = 0x1,       /* the caller's mistake */
    STATUS_CATEGORY_QUOTA = 0x2,       /* a limit of this caller */
    STATUS_CATEGORY_UNSUPPORTED = 0x3, /* understood, and not something gemmd does */
    STATUS_CATEGORY_BUSY = 0x4,        /* the same call may work later */
    STATUS_CATEGORY_DEVICE = 0x5,      /* the device failed */
    STATUS_CATEGORY_PROTOCOL = 0x6,    /* bytes that make no sense, or a peer that went away */
    STATUS_CATEGORY_INTERNAL = 0x7,    /* ours */
};

/* X(name, value, sentence) */
#define STATUS_LIST(X)                                                                             \
    X(OK, 0x000, "done")                                                                           \
    X(INVALID_ARGUMENT, 0x101, "an argument is out of range or contradicts another")               \
    X(NOT_FOUND, 0x102, "nothing has that name or id")                                             \
    X(EXISTS, 0x103, "that name is taken by something else")                                       \
    X(PERMISSION, 0x104, "this user may not do that")                                              \
    X(QUOTA, 0x201, "a limit of this session or user is reached")                                  \
    X(NO_SPACE, 0x202, "the device or the machine has no memory left for it")                      \
    X(UNSUPPORTED, 0x301, "gemmd does not do that")                                                \
    X(BAD_CHECKPOINT, 0x302, "the checkpoint is damaged or contradicts itself")                    \
    X(BUSY, 0x401, "too much is in flight; try again")                                             \
    X(TIMEOUT, 0x402, "the time allowed has passed")                                               \
    X(CANCELLED, 0x403, "cancelled before it started")                                             \
    X(SHUTTING_DOWN, 0x404, "the daemon is draining or stopping")                                  \
    X(DEVICE_LOST, 0x501, "the device failed; the daemon restarts")                                \
    X(DEVICE_ERROR, 0x502, "the device could not do this request")                                 \
    X(BAD_MESSAGE, 0x601, "the message could not be decoded")                                      \
    X(BAD_FRAMING, 0x602, "the ZeroMQ frames are not an envelope and one payload")                 \
    X(VERSION, 0x603, "the two ends speak no common protocol version")                             \
    X(NO_SESSION, 0x604, "the sender is not a live session")                                       \
    X(DISCONNECTED, 0x605, "the daemon is not there or hung up")                                   \
    X(INTERNAL, 0x701, "gemmd is at fault; please report it")                                      \
    X(NO_MEMORY, 0x702, "this process has no memory left")

enum status {
#define STATUS_X(name, value, sentence) STATUS_##name = (value),
    STATUS_LIST(STATUS_X)
#undef STATUS_X
};

/* The high byte of a status. */
static inline enum status_category status_category(int status)
{
    return (enum status_category)((status >> 8) & 0xff);
}

/* status_name() - "INVALID_ARGUMENT" for STATUS_INVALID_ARGUMENT; "UNKNOWN" for a number not in the
 * list. status_text() - the list's sentence, likewise. Static strings; any thread. */
const char *status_name(int status);
const char *status_text(int status);
