/* session_table.c - fixed buckets: the number of sessions is bounded by quota. Tokens are random,
 * so their first bytes are a hash already. */
#include "daemon/server/session_table.h"

#include <stdbool.h>

static uint32_t token_bucket(const uint8_t *token)
{
    uint32_t hash = 0;
    for (uint32_t i = 0; i < 8; i++) {
        hash = hash * 31 + token[i];
    }
    return hash % SESSION_TABLE_BUCKETS;
}

static bool is_same_token(const char *ours, const uint8_t *theirs)
{
    unsigned difference = 0;
    for (uint32_t i = 0; i < SIDE_TOKEN_BYTES; i++) {
        difference |= (unsigned)((uint8_t)ours[i] ^ theirs[i]);
    }
    return difference == 0;
}

void session_table_init(struct session_table *table)
{
    for (uint32_t i = 0; i < SESSION_TABLE_BUCKETS; i++) {
        list_init(&table->tokens[i]);
        list_init(&table->ids[i]);
    }
    list_init(&table->all);
}

void session_table_add(struct session_table *table, struct session *session)
{
    list_append(&table->ids[session->id % SESSION_TABLE_BUCKETS], &session->in_ids);
    list_append(&table->all, &session->in_all);
}

void session_table_publish(struct session_table *table, struct session *session)
{
    uint32_t i_bucket = token_bucket((const uint8_t *)session->token);
    list_append(&table->tokens[i_bucket], &session->in_tokens);
}

void session_table_hide(struct session *session)
{
    list_remove(&session->in_tokens);
}

struct session *session_table_by_token(const struct session_table *table, const uint8_t *token,
                                       size_t n_bytes)
{
    if (n_bytes != SIDE_TOKEN_BYTES) {
        return NULL;
    }
    list_for_each (node, &table->tokens[token_bucket(token)]) {
        struct session *session = LIST_OWNER(node, struct session, in_tokens);
        if (is_same_token(session->token, token)) {
            return session;
        }
    }
    return NULL;
}

struct session *session_table_by_id(const struct session_table *table, uint64_t id)
{
    list_for_each (node, &table->ids[id % SESSION_TABLE_BUCKETS]) {
        struct session *session = LIST_OWNER(node, struct session, in_ids);
        if (session->id == id) {
            return session;
        }
    }
    return NULL;
}
