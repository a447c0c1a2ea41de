/* worker_armed.c - launches that the device has queued before their rows are there.
 *
 * Once a launch is given to the device, the scheduler says which one should come next, and that is
 * armed: queued behind it, to wait for its rows. When the scheduler gives out that launch indeed,
 * the rows are written to where the device looks for them (fire), which takes no call of the driver
 * and no turn among what all processes give the GPU to do. Whatever else happens, it is disarmed,
 * and all goes on as if it had not been. One at a time is armed, and nothing else than that launch
 * can come of it; its moment it may choose itself, where it knows the requests that it should get
 * (worker_expected.c).
 *
 * The weight is held from arm() until the device gives the launch back, since its kernel may have
 * begun to read. The scheduler knows weights by address, which says nothing about whether one still
 * exists, so the store is asked for it. */
#include "daemon/engine/worker_internal.h"

#include <assert.h>
#include <errno.h>

#include "ipc/base/clock.h"

#include "daemon/engine/hash.h"

/* By itself the device waits this much longer than it should have to: for a worker that does not
 * get its CPU back in time. */
#define GRACE_USEC 1000u

static struct worker_slot *slot_of(struct worker *worker, uint64_t weight_key)
{
    return &worker->slots[hash_mix(weight_key) % WORKER_SLOTS];
}

void armed_remember(struct worker *worker, const struct weight *weight)
{
    *slot_of(worker, (uintptr_t)weight) = (struct worker_slot){(uintptr_t)weight, weight->slot_id};
}

/* A reference to the weight of that address, if it is still what requests are given. */
static struct weight *acquire(struct worker *worker, uint64_t weight_key)
{
    const struct worker_slot *slot = slot_of(worker, weight_key);
    struct weight *weight =
        slot->weight_key == weight_key ? store_acquire(worker->store, slot->slot_id) : NULL;
    bool is_it = (uintptr_t)weight == weight_key && weight->device == worker->device;
    return is_it ? weight : weight_unref(weight);
}

static int arm(struct worker *worker, struct worker_batch *batch, const struct sched_ahead *ahead)
{
    struct device_launch *launch = &batch->launch;
    struct device_expected expected[GK_BATCH_ROWS_MAX];
    *launch = (struct device_launch){
        .gk.problem = batch_problem(worker, batch->weight, ahead->class_key),
        .holds_place = ahead->is_in_place,
        .gk.packed = batch->weight->packed.base,
    };
    launch->gk.problem.m = ahead->n_rows;
    struct reason why;
    if (weight_select(batch->weight, &launch->gk.problem, &launch->kernel, &why) != 0) {
        return -ENOTSUP;
    }
    if (expected_gather(worker, batch, ahead)) {
        launch->expected = expected;
        launch->n_expected = expected_rows(batch, expected);
    }
    uint32_t limit_usec = (uint32_t)(ahead->wait_nsec / CLOCK_NSEC_PER_USEC) + GRACE_USEC;
    int r = worker->device->ops->arm(worker->device, launch, limit_usec);
    launch->expected = NULL; /* it has its own copy */
    launch->n_expected = 0;
    if (r != 0 && batch->is_expecting) {
        expected_return(worker, batch);
    }
    return r;
}

void armed_begin(struct worker *worker)
{
    struct sched_ahead ahead;
    if (!worker_may_arm(worker) || worker->n_unfired > 0 || worker_door_status(worker) != 0 ||
        worker->n_busy_batches == worker->device->launches_max ||
        !sched_ahead(worker->sched, clock_now_nsec(), &ahead)) {
        return;
    }
    struct weight *weight = acquire(worker, ahead.weight_key);
    if (weight == NULL) {
        return;
    }
    struct worker_batch *batch = batch_begin(worker);
    batch->weight = weight;
    if (arm(worker, batch, &ahead) != 0) { /* as good as not asked: this weight's kernel cannot */
        batch_end(worker, batch);
        return;
    }
    worker->armed = batch;
    worker->armed_for = ahead;
    worker->armed_until_nsec = 0;
    worker->n_unfired++;
    stats_add(&worker->counters->n_armed, 1);
}

static void count_disarmed(struct worker *worker, enum worker_disarm why)
{
    static_assert(WORKER_DISARMS == STATS_DISARMS, "a reason has no place in the figures");
    stats_add(&worker->counters->n_disarmed[why], 1);
    if (why != WORKER_DISARM_STOPPED) {
        sched_ahead_missed(worker->sched);
    }
}

/* Whether one that is expecting has begun by then is known when it comes back. */
static void disarm(struct worker *worker, enum worker_disarm why)
{
    struct worker_batch *batch = worker->armed;
    worker->device->ops->disarm(worker->device, &batch->launch);
    worker->armed = NULL;
    batch->why = why;
    if (!batch->is_expecting) {
        count_disarmed(worker, why);
    }
}

void armed_yield(struct worker *worker)
{
    if (worker->armed != NULL) {
        disarm(worker, WORKER_DISARM_OTHER);
    }
}

/* Can what was armed run that launch? */
static bool does_fit(const struct worker *worker, struct sched_item *const *items, uint32_t n_items,
                     uint32_t n_rows)
{
    if (n_rows > worker->armed_for.n_rows || worker->armed->is_expecting) {
        return false; /* those who are expected have not been given out */
    }
    for (uint32_t i = 0; i < n_items; i++) {
        const struct worker_request *request = request_of_item(items[i]);
        const struct checked *checked = &request->checked;
        if (request_is_prefill(request) || buffer_is_cpu_memory(checked->x_buffer) ||
            checked->x_scales != NULL) {
            return false;
        }
    }
    return items[0]->class_key == worker->armed_for.class_key;
}

struct worker_batch *armed_take(struct worker *worker, struct sched_item *const *items,
                                uint32_t n_items, uint32_t n_rows)
{
    struct worker_batch *batch = worker->armed;
    if (batch == NULL) {
        return NULL;
    }
    if (items[0]->weight_key != worker->armed_for.weight_key) {
        disarm(worker, WORKER_DISARM_OTHER);
        return NULL;
    }
    if (!does_fit(worker, items, n_items, n_rows)) {
        disarm(worker, WORKER_DISARM_UNFIT);
        return NULL;
    }
    worker->armed = NULL;
    worker->n_unfired--;
    return batch;
}

void armed_fire(struct worker *worker, struct worker_batch *batch)
{
    struct device_launch *launch = &batch->launch;
    launch->gk.problem.m = batch->n_rows;
    launch->gk.x_rows = batch->x_rows;
    launch->gk.y_rows = batch->y_rows;
    launch->signals = batch->signals;
    launch->n_signals = batch->n_signals;
    worker->device->ops->fire(worker->device, launch);
}

/* All have come, and the device has begun or does so now. */
static void fire_expected(struct worker *worker)
{
    struct worker_batch *batch = worker->armed;
    worker->armed = NULL;
    worker->n_unfired--;
    armed_fire(worker, batch);
    expected_launched(worker, batch);
    armed_begin(worker);
    batch_count_decisions(worker);
}

bool armed_poll(struct worker *worker)
{
    if (worker->armed == NULL) {
        return false;
    }
    if (worker_door_status(worker) != 0) {
        disarm(worker, WORKER_DISARM_STOPPED);
        return true;
    }
    if (worker->armed->is_expecting && expected_poll(worker->armed)) {
        fire_expected(worker);
        return true;
    }
    if (worker->n_busy_batches > worker->n_unfired) {
        return false; /* its turn has not come */
    }
    uint64_t now_nsec = clock_now_nsec();
    if (worker->armed_until_nsec == 0) {
        worker->armed_until_nsec = now_nsec + worker->armed_for.wait_nsec;
    }
    if (now_nsec > worker->armed_until_nsec) {
        disarm(worker, WORKER_DISARM_LATE);
        return true;
    }
    return false;
}

/* One that is expecting: the device has begun by itself, or never will. */
static void land_expecting(struct worker *worker, struct worker_batch *batch)
{
    bool was_given_up = worker->armed == batch;
    if (was_given_up) {
        worker->armed = NULL;
    }
    if (batch->launch.result == -ECANCELED) {
        count_disarmed(worker, was_given_up ? WORKER_DISARM_GIVEN_UP : batch->why);
        expected_return(worker, batch);
    } else {
        worker->n_unfired--;
        expected_launched(worker, batch);
    }
}

bool armed_landed(struct worker *worker, struct worker_batch *batch)
{
    if (batch->is_expecting) {
        land_expecting(worker, batch);
    }
    if (batch->n_requests > 0) { /* launched or fired, and then it had been armed */
        bool is_late = batch->launch.result == -ECANCELED;
        if (is_late) {
            count_disarmed(worker, WORKER_DISARM_GIVEN_UP);
        }
        stats_add(&worker->counters->n_fired, batch->weight != NULL && !is_late);
        batch->weight = weight_unref(batch->weight);
        return false;
    }
    if (worker->armed == batch) {
        worker->armed = NULL;
        count_disarmed(worker, WORKER_DISARM_GIVEN_UP);
    }
    worker->n_unfired--;
    return true;
}
