/* config.h - everything an operator can set, in one table.
 *
 * The file parser, --help, deploy/gemmd.conf and the table of gemmd.conf(5) follow from
 * config_options(); a test holds the last two to it. A file has lines `key = value`; a line whose
 * first character that is not a blank is '#' is a comment; list options may be given on several
 * lines, others once. Threads: set up before any starts; after that only the main thread's, which
 * changes what is reloadable on SIGHUP. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define CONFIG_TEXT_BYTES     256u
#define CONFIG_WORD_BYTES     32u
#define CONFIG_DIR_BYTES      100u /* "/session" behind it fills a socket address, NUL included */
#define CONFIG_DEVICES_MAX    16u
#define CONFIG_MODELS_MAX     64u
#define CONFIG_ADMINS_MAX     32u
#define CONFIG_ADMIN_SESSIONS 4u /* beyond user_sessions_max and total_sessions_max */
#define CONFIG_KERNELS_MAX    32u
#define CONFIG_FILE_BYTES_MAX (1024u * 1024u)
#define CONFIG_OPTIONS_MAX    64u

struct config_list {
    char **items;    /* owned, each owned */
    uint32_t *lines; /* owned: where each stands in the file; 0: it does not */
    uint32_t n;
};

enum config_tuning { CONFIG_TUNING_NO, CONFIG_TUNING_YES, CONFIG_TUNING_AUTO };

struct config {
    char file_name[CONFIG_TEXT_BYTES]; /* of the file that was parsed; "": none */
    uint32_t i_line;                   /* the line that is being parsed; 0: none */
    char socket_dir[CONFIG_DIR_BYTES]; /* "": see config_default_socket_dir() */
    char log[CONFIG_TEXT_BYTES];
    char host_isa[CONFIG_WORD_BYTES]; /* "": no limit */
    struct config_list devices;       /* empty: auto */
    struct config_list models;        /* NAME=PATH */
    struct config_list model_options; /* NAME: KEY=VALUE ...; see model_options.h */
    struct config_list admin_uids;
    struct config_list kernels_disabled;
    struct config_list kernels_preferred;
    char tuning_file[CONFIG_TEXT_BYTES];
    uint64_t socket_mode;
    uint64_t threads;
    uint64_t batching;     /* enum sched_mode */
    uint64_t launch_ahead; /* 0 or 1 */
    uint64_t tuning;       /* enum config_tuning */
    uint64_t spin_usec;
    uint64_t rows_max;
    uint64_t requests_max;
    uint64_t session_requests_max;
    uint64_t lane_entries;
    uint64_t buffer_bytes_max;
    uint64_t session_buffers_max;
    uint64_t user_sessions_max;
    uint64_t user_buffers_max;
    uint64_t user_buffer_bytes_max;
    uint64_t user_fds_max;
    uint64_t total_sessions_max;
    uint64_t total_buffers_max;
    uint64_t total_buffer_bytes_max;
    uint64_t total_fds_max;
    uint64_t hello_timeout_msec;
    uint64_t drain_timeout_msec;
    uint64_t status_port;
    uint64_t ready_age_msec;
};

enum config_type {
    CONFIG_TYPE_COUNT,  /* a decimal number */
    CONFIG_TYPE_BYTES,  /* a number with an optional K, M, G or T (powers of 1024) */
    CONFIG_TYPE_MODE,   /* an octal number */
    CONFIG_TYPE_CHOICE, /* a word of `unit`, which lists them as "a|b|c"; kept as its number there;
                         * with yes and no, true, on, false and off mean them */
    CONFIG_TYPE_TEXT,
    CONFIG_TYPE_LIST, /* text, one item a line */
};

/* 0, negative errno, or STATUS_INVALID_ARGUMENT whose sentence does not name the option. */
typedef int (*config_rule_fn)(const char *value, struct reason *why);

struct config_option {
    const char *name;
    enum config_type type;
    size_t offset;       /* of the field in struct config */
    const char *initial; /* as it would be written in a file; "" for an empty text or list */
    uint64_t min;        /* numbers: bounds; texts and lists: unused */
    uint64_t max;        /* numbers: bounds; texts: bytes with the NUL; lists: items */
    const char *unit;    /* "" when it has none; choices: the words */
    const char *doc;     /* one sentence */
    bool is_reloadable;  /* a SIGHUP takes it over; see reload.h */
    bool is_path;        /* in a file it has to be absolute */
    config_rule_fn rule; /* what a value, or an item, has to be besides; NULL: nothing */
    int over;            /* a limit: the status that answers what is over it; 0: see figure */
    const char *figure;  /* a limit: the metric that counts what met it; NULL: it is none */
};

/* config_options() - the table, static. config_find() - the row of that name, or NULL.
 * config_no_option() - refuse a name that has none, saying which are like it. */
const struct config_option *config_options(uint32_t *ret_n);
const struct config_option *config_find(const char *name);
int config_no_option(const char *name, struct reason *why);
const char *config_type_name(enum config_type type); /* "number", "size", ...; static */

/* config_init() - all defaults. config_finish() - free the lists; safe on a zeroed config. */
int config_init(struct config *config) GD_MUST_CHECK;
void config_finish(struct config *config);

/* config_set() - one option by name from text; a list gains an item. Return: 0, -ENOMEM, or
 * STATUS_INVALID_ARGUMENT naming option, value and bounds. */
int config_set(struct config *config, const char *name, const char *value,
               struct reason *why) GD_MUST_CHECK;

/* config_clear() - empty a list option, so that the command line replaces what the file had. */
void config_clear(struct config *config, const char *name);

/* config_parse() - the text of a file, on top of what *config holds. The sentence starts with
 * "FILE:LINE: ". Return as config_set(). config_load() - the same from disk; a file that cannot be
 * read or is over CONFIG_FILE_BYTES_MAX is STATUS_INVALID_ARGUMENT, too. */
int config_parse(struct config *config, const char *file_name, const char *text, size_t n_bytes,
                 struct reason *why) GD_MUST_CHECK;
int config_load(struct config *config, const char *path, struct reason *why) GD_MUST_CHECK;

/* config_check() - rules between options. 0, or STATUS_INVALID_ARGUMENT that starts with
 * "FILE:LINE: " where the item at fault stands in the file. */
int config_check(const struct config *config, struct reason *why) GD_MUST_CHECK;

/* config_check_checkpoint() - is there a checkpoint for item i_model of models that can become what
 * model_options wants of it, as far as settings and headers show? Return as model_source_open();
 * the sentence starts as that of config_check(). */
int config_check_checkpoint(const struct config *config, uint32_t i_model,
                            struct reason *why) GD_MUST_CHECK;

/* config_has_model() - does models name it? */
bool config_has_model(const struct config *config, const char *name);

/* config_default_socket_dir() - $GEMMD_SOCKET_DIR, else $XDG_RUNTIME_DIR/gemmd, else /run/gemmd:
 * the rule of the client library. */
void config_default_socket_dir(char *text, size_t size_bytes);

/* config_tuning_file() - where measurements of kernels are kept: tuning_file, else
 * $STATE_DIRECTORY/tuning, $XDG_CACHE_HOME/gemmd/tuning or $HOME/.cache/gemmd/tuning; "": nowhere.
 */
void config_tuning_file(const struct config *config, char *text, size_t size_bytes);

/* config_split_model() - NAME=PATH; the name ends at the first '='. */
int config_split_model(const char *item, char *ret_name, size_t name_bytes, const char **ret_path,
                       struct reason *why) GD_MUST_CHECK;

/* config_admin_uids() - root, the daemon's own, and those in admin_uids; returns how many.
 * config_is_admin() - is that uid one of them? */
uint32_t config_admin_uids(const struct config *config, uid_t ret_uids[CONFIG_ADMINS_MAX + 2]);
bool config_is_admin(const struct config *config, uid_t uid);
