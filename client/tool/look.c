/* look.c - see look.h. */
#include "client/tool/look.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/clock.h"

static_assert(sizeof(struct stats_page) % sizeof(uint64_t) == 0, "copied by the word");

void look_take(const struct stats_page *page, struct look *ret_look)
{
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)page;
    uint64_t *to = (uint64_t *)(void *)&ret_look->page;
    for (size_t i = 0; i < sizeof(*page) / sizeof(uint64_t); i++) {
        to[i] = stats_read(&from[i]);
    }
    ret_look->at_nsec = clock_now_nsec();
}

double look_quantile(const struct stats_times *now, const struct stats_times *then, double share)
{
    uint64_t counts[STATS_TIME_BUCKETS];
    uint64_t n = 0;
    for (uint32_t i = 0; i < STATS_TIME_BUCKETS; i++) {
        counts[i] = stats_read(&now->counts[i]) - stats_read(&then->counts[i]);
        n += counts[i];
    }
    if (n == 0) {
        return LOOK_NOTHING;
    }
    double wanted = share * (double)n;
    double sum = 0;
    double low = 0;
    for (uint32_t i = 0;; i++) {
        double high = 1e-6 * (double)(1u << i);
        if (sum + (double)counts[i] >= wanted || i == STATS_TIME_BUCKETS - 1) {
            return counts[i] == 0 ? high : low + (high - low) * (wanted - sum) / (double)counts[i];
        }
        sum += (double)counts[i];
        low = high;
    }
}

double look_since(const struct look *look, uint64_t nsec)
{
    return nsec == 0 || nsec >= look->at_nsec ? 0 : (double)(look->at_nsec - nsec) / 1e9;
}

static double change(const _Atomic uint64_t *now, const _Atomic uint64_t *then)
{
    return (double)(stats_read(now) - stats_read(then));
}

static double share_of(double n, double n_all)
{
    return n_all > 0 ? n / n_all : 0;
}

static double n_disarmed(const struct stats_worker *now, const struct stats_worker *then)
{
    double n = 0;
    for (uint32_t i = 0; i < STATS_DISARMS; i++) {
        n += change(&now->n_disarmed[i], &then->n_disarmed[i]);
    }
    return n;
}

void look_rates(const struct look *now, const struct look *then, uint32_t i_device,
                struct look_rates *ret_rates)
{
    const struct stats_worker *a = &now->page.workers[i_device];
    const struct stats_worker *b = &then->page.workers[i_device];
    double seconds = (double)num_max(1, now->at_nsec - then->at_nsec) / 1e9;
    double n_launches = change(&a->n_launches, &b->n_launches);
    double n_bad = change(&a->n_refused, &b->n_refused) + change(&a->n_failed, &b->n_failed) +
                   change(&a->n_timed_out, &b->n_timed_out);
    *ret_rates = (struct look_rates){
        .seconds = seconds,
        .requests = change(&a->n_ok, &b->n_ok) / seconds,
        .bad = n_bad / seconds,
        .rows = change(&a->n_rows, &b->n_rows) / seconds,
        .launches = n_launches / seconds,
        .busy = change(&a->busy_nsec, &b->busy_nsec) / 1e9 / seconds,
        .rows_a_launch = share_of(change(&a->launch_rows, &b->launch_rows), n_launches),
        .shared = share_of(change(&a->n_shared_launches, &b->n_shared_launches), n_launches),
        .ahead = share_of(change(&a->n_fired, &b->n_fired), n_launches),
        .vain = share_of(n_disarmed(a, b), n_launches),
        .queue_p50 = look_quantile(&a->queue, &b->queue, 0.5),
        .queue_p99 = look_quantile(&a->queue, &b->queue, 0.99),
        .request_p50 = look_quantile(&a->request, &b->request, 0.5),
        .request_p99 = look_quantile(&a->request, &b->request, 0.99),
        .stall_p99 = look_quantile(&a->stall, &b->stall, 0.99),
    };
    for (uint32_t i = 0; i < STATS_ROW_BUCKETS; i++) {
        ret_rates->launches_by_rows[i] =
            stats_read(&a->launches_by_rows[i]) - stats_read(&b->launches_by_rows[i]);
    }
}

/* ---- health ---- */

static bool has_no_process(const struct look *look)
{
    return kill((pid_t)look->page.pid, 0) != 0 && errno == ESRCH;
}

/* Its number tells only where no knock can: it is another process's in a container, and stays while
 * nobody reaps it. A daemon that is starting may not listen yet. */
static bool is_gone(const struct look *look)
{
    bool is_starting = stats_read(&look->page.main.phase) == 0;
    switch (look->listener) {
    case LOOK_LISTENER_THERE:
        return false;
    case LOOK_LISTENER_NONE:
        return !is_starting || has_no_process(look);
    default:
        return has_no_process(look);
    }
}

static double since_last_end(const struct look *look, uint32_t i_device)
{
    uint64_t last_nsec = stats_read(&look->page.workers[i_device].last_end_nsec);
    return look_since(look, num_max(last_nsec, look->page.start_nsec));
}

/* Something was in flight at both looks, and nothing ended between them or lately. */
static bool is_stuck(const struct look *now, const struct look *then, uint32_t i_device)
{
    const struct stats_worker *a = &now->page.workers[i_device];
    const struct stats_worker *b = &then->page.workers[i_device];
    return stats_read(&a->n_in_flight) != 0 && stats_read(&b->n_in_flight) != 0 &&
           stats_read(&a->last_end_nsec) == stats_read(&b->last_end_nsec) &&
           since_last_end(now, i_device) > LOOK_STUCK_SECONDS;
}

void look_health(const struct look *now, const struct look *then, uint64_t poked_nsec, char *text,
                 uint32_t size_bytes)
{
    uint64_t turn_nsec = stats_read(&now->page.main.turn_nsec);
    text[0] = '\0';
    if (is_gone(now)) {
        (void)snprintf(text, size_bytes, "process %ju is gone; these are its last figures",
                       (uintmax_t)now->page.pid);
        return;
    }
    for (uint32_t i = 0; i < now->page.n_devices && i < STATS_DEVICES_MAX; i++) {
        const struct stats_worker *worker = &now->page.workers[i];
        if (is_stuck(now, then, i)) {
            (void)snprintf(text, size_bytes,
                           "%s: %ju requests in flight, and no launch has ended for %.1f s",
                           worker->device_name, (uintmax_t)stats_read(&worker->n_in_flight),
                           since_last_end(now, i));
            return;
        }
    }
    if (poked_nsec != 0 && turn_nsec < poked_nsec &&
        look_since(now, poked_nsec) > LOOK_STUCK_SECONDS) {
        (void)snprintf(text, size_bytes, "the main thread has not come round for %.1f s",
                       look_since(now, num_max(turn_nsec, now->page.start_nsec)));
    }
}
