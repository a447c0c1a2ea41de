/* session_table.h - finding sessions: by token (control messages) and by id (news from workers).
 * The table owns nothing: a session takes itself out when it is freed. Main thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/server/session.h"
#include "ipc/base/list.h"

#define SESSION_TABLE_BUCKETS 1024u /* a power of two, about the default of total_sessions_max */

struct session_table {
    struct list tokens[SESSION_TABLE_BUCKETS];
    struct list ids[SESSION_TABLE_BUCKETS];
    struct list all; /* oldest first */
};

/* session_table_init() - empty. session_table_add() - found by id from now on; by token once
 * published. */
void session_table_init(struct session_table *table);
void session_table_add(struct session_table *table, struct session *session);

/* session_table_publish() - from now on the token finds it. session_table_hide() - no longer. */
void session_table_publish(struct session_table *table, struct session *session);
void session_table_hide(struct session *session);

/* NULL when there is none. The time of a look-up by token says nothing of how much of it was right.
 */
struct session *session_table_by_token(const struct session_table *table, const uint8_t *token,
                                       size_t n_bytes);
struct session *session_table_by_id(const struct session_table *table, uint64_t id);
