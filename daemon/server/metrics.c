/* metrics.c - see metrics.h. Plain figures are rows of tables: name, sentence, place. */
#include "daemon/server/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/accept_guard.h"
#include "daemon/server/build_id.h"
#include "daemon/server/message_guard.h"
#include "daemon/server/metrics_internal.h"
#include "daemon/server/openmetrics.h"

static const struct openmetrics_labels none = {.text = ""};

/* ---- the daemon ---- */

static void write_build(struct openmetrics *om, const struct core *core)
{
    struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
    openmetrics_label(&labels, "version", GEMMD_VERSION);
    openmetrics_label(&labels, "build_id", build_id());
    openmetrics_family(om, OPENMETRICS_INFO, "gemmd_build", "The program that runs.");
    openmetrics_count(om, &labels, 1);
    openmetrics_family(om, OPENMETRICS_GAUGE, "gemmd_state",
                       "1 for the state that the daemon is in.");
    for (int phase = CORE_STARTING; phase <= CORE_STOPPING; phase++) {
        struct openmetrics_labels state = OPENMETRICS_LABELS_NONE;
        openmetrics_label(&state, "state", core_phase_name((enum core_phase)phase));
        openmetrics_count(om, &state, (int)core->phase == phase);
    }
}

static void write_plain(struct openmetrics *om, enum openmetrics_kind kind, const char *name,
                        const char *help, uint64_t value)
{
    openmetrics_family(om, kind, name, help);
    openmetrics_count(om, &none, value);
}

static void write_counters(struct openmetrics *om, const struct core *core)
{
    const struct core_counters *counters = &core->counters;
    const struct {
        const char *name, *help;
        uint64_t value;
    } rows[] = {
        {"gemmd_sessions_opened", "Sessions that were welcomed.", counters->n_sessions},
        {"gemmd_sessions_refused", "Connections refused for want of quota or descriptors.",
         counters->n_sessions_refused},
        {"gemmd_sessions_dropped", "Sessions that the daemon hung up on.",
         counters->n_sessions_dropped},
        {"gemmd_connections_shed",
         "Connections closed at once for want of descriptors, "
         "or since their user has too many.",
         accept_guard_shed()},
        {"gemmd_control_messages", "Messages on the control socket.", counters->n_messages},
        {"gemmd_control_refused", "Control requests that were answered with an error.",
         counters->n_refused},
        {"gemmd_session_refused", "Questions on session sockets that were answered with an error.",
         counters->n_side_refused},
        {"gemmd_replies_held", "Replies that waited for a client to read.",
         counters->n_replies_held},
        {"gemmd_replies_lost", "Replies whose client had gone.", counters->n_replies_lost},
    };
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        write_plain(om, OPENMETRICS_COUNTER, rows[i].name, rows[i].help, rows[i].value);
    }
}

static void write_errors(struct openmetrics *om, const struct core *core)
{
    const struct {
        const char *kind;
        uint64_t value;
    } rows[] = {
        {"bad_message", core->counters.n_bad_messages},
        {"bad_framing", core->counters.n_bad_framing},
        {"endless_message", message_guard_cut()},
        {"unknown_sender", core->counters.n_unknown_senders},
    };
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_protocol_errors",
                       "What clients sent that is no message of the protocol.");
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
        openmetrics_label(&labels, "kind", rows[i].kind);
        openmetrics_count(om, &labels, rows[i].value);
    }
}

/* ---- accounts ---- */

static void write_held(struct openmetrics *om, const struct core *core)
{
    static const struct {
        enum quota_kind kind;
        const char *held, *help, *limit;
    } rows[] = {
        {QUOTA_SESSIONS, "gemmd_sessions", "Sessions that are open.", "gemmd_sessions_limit"},
        {QUOTA_BUFFERS, "gemmd_buffers", "Buffers that clients hold.", "gemmd_buffers_limit"},
        {QUOTA_BYTES, "gemmd_buffer_bytes", "Bytes in buffers and lanes of clients.",
         "gemmd_buffer_limit_bytes"},
        {QUOTA_FDS, "gemmd_client_fds", "Descriptors that are open for clients.",
         "gemmd_client_fds_limit"},
    };
    uint64_t held[QUOTA_KINDS];
    uint32_t n_users;
    quota_totals(core->quota, held, &n_users);
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        write_plain(om, OPENMETRICS_GAUGE, rows[i].held, rows[i].help, held[rows[i].kind]);
        write_plain(om, OPENMETRICS_GAUGE, rows[i].limit, "Its limit over all users.",
                    core->limits.total[rows[i].kind]);
    }
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_users", "Users with something charged to them.",
                n_users);
}

static void write_refusals(struct openmetrics *om, const struct core *core)
{
    uint64_t refused[2][QUOTA_KINDS];
    static const char *const whose[] = {"user", "total"};
    quota_refusals(core->quota, refused[0], refused[1]);
    openmetrics_family(om, OPENMETRICS_COUNTER, "gemmd_quota_refusals",
                       "Requests over a limit, by the option that sets it.");
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t kind = 0; kind < QUOTA_KINDS; kind++) {
            char option[64];
            struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
            (void)snprintf(option, sizeof(option), "%s_%s_max", whose[i],
                           quota_kind_name((enum quota_kind)kind));
            openmetrics_label(&labels, "limit", option);
            openmetrics_count(om, &labels, refused[i][kind]);
        }
    }
}

/* ---- models ---- */

static void write_resident(struct openmetrics *om, const struct core *core)
{
    struct store_totals totals;
    store_totals(core->store, &totals);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_models", "Models that are served.", totals.n_models);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_weights", "Weights that are served.",
                totals.n_weights);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_packed_bytes", "Bytes of packed weights.",
                totals.packed_bytes);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_retired_bytes",
                "Bytes of replaced weights that requests in flight still hold.",
                totals.retired_bytes);
}

static void write_served(struct openmetrics *om, const struct stats_page *stats, const char *name,
                         const char *help, size_t offset)
{
    openmetrics_family(om, OPENMETRICS_COUNTER, name, help);
    for (uint32_t i = 0; i < STATS_MODELS_MAX; i++) {
        const struct stats_model *model = &stats->models[i];
        const _Atomic uint64_t *counter =
            (const _Atomic uint64_t *)(const void *)((const char *)model + offset);
        bool is_last = i == STATS_MODELS_MAX - 1;
        bool is_used = is_last ? stats_read(&model->n_requests) != 0
                               : atomic_load_explicit(&model->is_named, memory_order_acquire) != 0;
        if (is_used) {
            struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
            openmetrics_label(&labels, "model", is_last ? "(others)" : model->name);
            openmetrics_count(om, &labels, stats_read(counter));
        }
    }
}

static void write_models(struct openmetrics *om, const struct msg_model *models, uint32_t n)
{
    static const char *const names[] = {"gemmd_model_packed_bytes", "gemmd_model_weights",
                                        "gemmd_model_generation", "gemmd_model_load_seconds",
                                        "gemmd_model_load_bytes"};
    static const char *const helps[] = {"Bytes of a model's packed weights.", "Weights of a model.",
                                        "Counts up with every load and reload of any model.",
                                        "How long its load took.",
                                        "Bytes that it read from the checkpoint."};
    for (uint32_t i = 0; i < ARRAY_LENGTH(names); i++) {
        openmetrics_family(om, OPENMETRICS_GAUGE, names[i], helps[i]);
        for (uint32_t j = 0; j < n; j++) {
            const double values[] = {(double)models[j].packed_bytes, (double)models[j].n_weights,
                                     (double)models[j].generation, models[j].load_seconds,
                                     (double)models[j].load_bytes};
            struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
            openmetrics_label(&labels, "model", models[j].name);
            openmetrics_label(&labels, "device", models[j].device);
            openmetrics_real(om, &labels, values[i]);
        }
    }
}

static void write_load_shares(struct openmetrics *om, const struct msg_model *models, uint32_t n)
{
    openmetrics_family(om, OPENMETRICS_GAUGE, "gemmd_model_load_share_ratio",
                       "Of the time of all threads that loaded it, by what they did.");
    for (uint32_t i = 0; i < n * MSG_LOAD_PHASES; i++) {
        const struct msg_model *model = &models[i / MSG_LOAD_PHASES];
        enum msg_load_phase phase = (enum msg_load_phase)(i % MSG_LOAD_PHASES);
        struct openmetrics_labels labels = OPENMETRICS_LABELS_NONE;
        openmetrics_label(&labels, "model", model->name);
        openmetrics_label(&labels, "device", model->device);
        openmetrics_label(&labels, "phase", msg_load_phase_name(phase));
        openmetrics_real(om, &labels, model->load_shares[phase]);
    }
}

static void write_store(struct openmetrics *om, const struct core *core)
{
    struct msg_model *models = NULL;
    uint32_t n = 0;
    write_resident(om, core);
    write_served(om, core->stats, "gemmd_model_requests", "Requests served of a model.",
                 offsetof(struct stats_model, n_requests));
    write_served(om, core->stats, "gemmd_model_rows", "Rows served of a model.",
                 offsetof(struct stats_model, n_rows));
    if (store_list_models(core->store, &models, &n) == 0) {
        n = (uint32_t)num_min(n, STATS_MODELS_MAX);
        write_models(om, models, n);
        write_load_shares(om, models, n);
    }
    free(models);
}

/* How this process came to serve; see weights/adopt.h. */
static void write_start(struct openmetrics *om, const struct core *core)
{
    const struct adoption *adoption = &core->adoption;
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_weights_kept", "1 if weights outlive this process.",
                core->keep.ops != NULL);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_adoption_refused_models",
                "Models that were kept and could not be taken over.", adoption->n_refused);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_adopted_models",
                "Models taken over from an earlier process at the start.", adoption->n_models);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_adopted_weights", "Their weights.",
                adoption->n_weights);
    write_plain(om, OPENMETRICS_GAUGE, "gemmd_adopted_bytes", "Their bytes.", adoption->n_bytes);
    openmetrics_family(om, OPENMETRICS_GAUGE, "gemmd_adopt_seconds",
                       "How long taking them over took.");
    openmetrics_real(om, &none, adoption->seconds);
    openmetrics_family(om, OPENMETRICS_GAUGE, "gemmd_adopt_digest_seconds",
                       "How long comparing their bytes took of that.");
    openmetrics_real(om, &none, adoption->digest_seconds);
    if (core->ready_nsec != 0) {
        openmetrics_family(om, OPENMETRICS_GAUGE, "gemmd_ready_seconds",
                           "From the start to being ready.");
        openmetrics_nsec(om, &none, core->ready_nsec - core->start_nsec);
    }
}

char *metrics_document(const struct core *core, bool is_openmetrics, size_t *ret_n_bytes)
{
    struct openmetrics om;
    if (openmetrics_begin(&om, is_openmetrics) != 0) {
        return NULL;
    }
    write_build(&om, core);
    metrics_process(&om, core);
    write_start(&om, core);
    write_counters(&om, core);
    write_errors(&om, core);
    write_held(&om, core);
    write_refusals(&om, core);
    write_store(&om, core);
    metrics_devices(&om, core);
    return openmetrics_end(&om, ret_n_bytes);
}
