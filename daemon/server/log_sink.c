/* log_sink.c - see log_sink.h. The levels are one word each, so that a reload may change them under
 * running threads; the topics' names are fixed. A line is one write(), so that lines of threads do
 * not mix. */
#include "daemon/server/log_sink.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "ipc/base/num.h"

#define LINE_BYTES 1024u

static const char *const topics[] = {"device",  "loader", "store",  "worker", "session",
                                     "control", "server", "keeper", "other"};
#define I_OTHER (ARRAY_LENGTH(topics) - 1)

static _Atomic int levels[ARRAY_LENGTH(topics)];
static bool is_journal;

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error", [LOG_LEVEL_WARNING] = "warning", [LOG_LEVEL_NOTICE] = "notice",
    [LOG_LEVEL_INFO] = "info",   [LOG_LEVEL_DEBUG] = "debug",
};
static const int syslog_priorities[] = {
    [LOG_LEVEL_ERROR] = 3, [LOG_LEVEL_WARNING] = 4, [LOG_LEVEL_NOTICE] = 5,
    [LOG_LEVEL_INFO] = 6,  [LOG_LEVEL_DEBUG] = 7,
};

static uint32_t topic_index(const char *topic)
{
    for (uint32_t i = 0; i < I_OTHER; i++) {
        if (strcmp(topics[i], topic) == 0) {
            return i;
        }
    }
    return I_OTHER;
}

static int level_parse(const char *text)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(level_names); i++) {
        if (strcmp(level_names[i], text) == 0) {
            return (int)i;
        }
    }
    return -EINVAL;
}

static int word_apply(char *word, int *wanted, struct reason *why)
{
    char *colon = strchr(word, ':');
    const char *level_text = colon != NULL ? colon + 1 : word;
    int level = level_parse(level_text);
    if (level < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "'%.32s' is none of error, warning, notice, info, debug", level_text);
    }
    if (colon == NULL || strncmp(word, "*:", 2) == 0) {
        for (uint32_t i = 0; i < ARRAY_LENGTH(topics); i++) {
            wanted[i] = level;
        }
        return 0;
    }
    *colon = '\0';
    uint32_t i_topic = topic_index(word);
    if (i_topic == I_OTHER && strcmp(word, topics[I_OTHER]) != 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "there is no topic '%.32s'", word);
    }
    wanted[i_topic] = level;
    return 0;
}

static int parse_levels(const char *spec, int wanted[ARRAY_LENGTH(topics)], struct reason *why)
{
    char words[256];
    for (uint32_t i = 0; i < ARRAY_LENGTH(topics); i++) {
        wanted[i] = LOG_LEVEL_INFO;
    }
    if ((size_t)snprintf(words, sizeof(words), "%s", spec) >= sizeof(words)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "over %zu bytes", sizeof(words) - 1);
    }
    char *rest = words;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        word += strspn(word, " ");
        int r = word[0] != '\0' ? word_apply(word, wanted, why) : 0;
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int log_sink_check(const char *spec, struct reason *why)
{
    int wanted[ARRAY_LENGTH(topics)];
    return parse_levels(spec, wanted, why);
}

int log_sink_levels(const char *spec, struct reason *why)
{
    int wanted[ARRAY_LENGTH(topics)];
    int r = parse_levels(spec, wanted, why);
    if (r != 0) {
        return r;
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(topics); i++) {
        atomic_store_explicit(&levels[i], wanted[i], memory_order_relaxed);
    }
    return 0;
}

int log_sink_configure(const char *option, struct reason *why)
{
    const char *own = getenv("GEMMD_LOG");
    bool is_own = own != NULL && own[0] != '\0';
    int r = log_sink_levels(is_own ? own : option, why);
    if (r > 0) {
        reason_prefix(why, is_own ? "GEMMD_LOG" : "log");
    }
    return r;
}

const char *log_sink_event_id(enum log_event event)
{
    static const char *const ids[LOG_EVENTS] = {
        [LOG_EVENT_NONE] = "",
        [LOG_EVENT_START_REFUSED] = "8dc60d3137dc448e967dfe28cb2a08ec",
        [LOG_EVENT_DEVICE_LOST] = "64b16c3ff3514533af9ce636b4d078de",
        [LOG_EVENT_NO_SIGN_OF_LIFE] = "630280494f264233a218a381b8bdc865",
        [LOG_EVENT_NOT_ADOPTED] = "bf3c156cb2d6486fbe56f8001d16693e",
        [LOG_EVENT_CHECKPOINT_CHANGED] = "10457f7f5435401883ed4c70a4ad62b4",
        [LOG_EVENT_JOB_FAILED] = "1a564818d5424512b221db5127e8732f",
        [LOG_EVENT_CONFIG_REFUSED] = "52ac86bd278740c7b8c0b08c68339f03",
    };
    return ids[event];
}

/* False where the journal cannot be reached. */
static bool to_journal(enum log_event event, enum log_level level, const char *topic,
                       const char *text)
{
    return sd_journal_send("MESSAGE=%s: %s", topic, text, "MESSAGE_ID=%s", log_sink_event_id(event),
                           "PRIORITY=%d", syslog_priorities[level], "GEMMD_TOPIC=%s", topic,
                           NULL) == 0;
}

static void sink(enum log_event event, enum log_level level, const char *topic, const char *format,
                 va_list args) __attribute__((format(printf, 4, 0)));

static void sink(enum log_event event, enum log_level level, const char *topic, const char *format,
                 va_list args)
{
    uint32_t i_topic = topic_index(topic);
    if ((int)level > atomic_load_explicit(&levels[i_topic], memory_order_relaxed)) {
        return;
    }
    char text[LINE_BYTES];
    char line[LINE_BYTES + 64];
    (void)vsnprintf(text, sizeof(text), format, args);
    if (is_journal && event != LOG_EVENT_NONE && to_journal(event, level, topic, text)) {
        return;
    }
    int n =
        is_journal
            ? snprintf(line, sizeof(line), "<%d>%s: %s\n", syslog_priorities[level], topic, text)
            : snprintf(line, sizeof(line), "gemmd: %s: %s: %s\n", level_names[level], topic, text);
    ssize_t ignored =
        write(STDERR_FILENO, line, (size_t)n); /* nobody is left to hear of a failure */
    (void)ignored;
}

void log_sink_install(void)
{
    is_journal = getenv("JOURNAL_STREAM") != NULL;
    log_set_sink(sink);
}

bool log_allows(struct log_rate *rate, uint32_t n_per_second, uint64_t now_nsec)
{
    uint64_t second = now_nsec / 1000000000u;
    if (second != rate->second) {
        if (rate->n_suppressed > 0) {
            log_write(LOG_LEVEL_WARNING, "server", "%ju similar lines were left out",
                      (uintmax_t)rate->n_suppressed);
        }
        *rate = (struct log_rate){.second = second};
    }
    if (rate->n_lines >= n_per_second) {
        rate->n_suppressed++;
        return false;
    }
    rate->n_lines++;
    return true;
}
