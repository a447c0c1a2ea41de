/* ahead_device.c - see ahead_device.h. */
#include "tests/unit/engine/ahead_device.h"

#include <errno.h>
#include <string.h>

#include "ipc/base/check.h"
#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "ipc/base/status.h"

#define FLIGHTS_MAX 4u
#define RUNNING_MAX 2u

enum stage { RUNNING, ARMED, DISARMED, LOST };

struct flight {
    struct device_launch *launch;
    enum stage stage;
    uint32_t n_rows_max;
    uint64_t limit_nsec;
    uint64_t turn_nsec; /* when it came to the front; 0: it has not */

    /* Of one that expects rows: */
    uint32_t n_expected;
    bool has_begun; /* by itself */
    bool is_fired;
    struct device_expected expected[GK_BATCH_ROWS_MAX];
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    struct device_signal signals[GK_BATCH_ROWS_MAX];
};

static struct ahead_device *ahead;
static const struct device_ops *host;
static struct flight flights[FLIGHTS_MAX];
static uint32_t n_flights;

static uint32_t n_live(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_flights; i++) {
        n += flights[i].stage != DISARMED;
    }
    return n;
}

bool ahead_device_waits(void)
{
    for (uint32_t i = 0; i < n_flights; i++) {
        if (flights[i].stage == ARMED) {
            return true;
        }
    }
    return false;
}

static int add(struct device_launch *launch, enum stage stage, uint32_t limit_usec)
{
    if (n_live() == RUNNING_MAX || n_flights == FLIGHTS_MAX) {
        return -EAGAIN;
    }
    flights[n_flights++] = (struct flight){
        .launch = launch,
        .stage = stage,
        .n_rows_max = launch->gk.problem.m,
        .limit_nsec = limit_usec * (uint64_t)CLOCK_NSEC_PER_USEC,
    };
    return 0;
}

static struct flight *find(const struct device_launch *launch)
{
    for (uint32_t i = 0; i < n_flights; i++) {
        if (flights[i].launch == launch) {
            return &flights[i];
        }
    }
    return NULL;
}

static int ahead_launch(struct device *device, struct device_launch *launch)
{
    (void)device;
    GD_ASSERT(find(launch) == NULL && launch->gk.x_rows != NULL);
    GD_ASSERT(!ahead_device_waits()); /* it would wait behind it */
    launch->start_nsec = clock_now_nsec();
    return add(launch, RUNNING, 0);
}

/* ---- what it expects ---- */

static void expect(struct flight *flight, const struct device_launch *launch)
{
    GD_ASSERT(launch->n_expected == 0 || launch->n_expected == launch->gk.problem.m);
    flight->n_expected = launch->n_expected;
    for (uint32_t i = 0; i < launch->n_expected; i++) {
        flight->expected[i] = launch->expected[i];
        flight->x_rows[i] = launch->expected[i].x;
        flight->y_rows[i] = launch->expected[i].y;
    }
}

static bool have_all_come(const struct flight *flight)
{
    for (uint32_t i = 0; i < flight->n_expected; i++) {
        const struct device_signal *ready = &flight->expected[i].ready;
        const _Atomic uint32_t *word = (const _Atomic uint32_t *)(uintptr_t)ready->address;
        if (atomic_load(word) != ready->value) {
            return false;
        }
    }
    return flight->n_expected > 0;
}

static void begin_if_it_can(struct flight *flight)
{
    if (flight->stage != ARMED || flight != &flights[0] || flight->turn_nsec == 0 ||
        ahead->is_deaf || !have_all_come(flight)) {
        return;
    }
    flight->stage = RUNNING;
    flight->has_begun = true;
    flight->launch->start_nsec = clock_now_nsec();
    ahead->n_begun++;
}

/* What fire() would have said. */
static void tell_rows(struct flight *flight)
{
    struct device_launch *launch = flight->launch;
    launch->gk.problem.m = flight->n_expected;
    launch->gk.x_rows = flight->x_rows;
    launch->gk.y_rows = flight->y_rows;
    launch->signals = flight->signals;
    launch->n_signals = 0;
    for (uint32_t i = 0; i < flight->n_expected; i++) {
        if (flight->expected[i].done.address != 0) {
            flight->signals[launch->n_signals++] = flight->expected[i].done;
        }
    }
}

static bool is_as_expected(const struct flight *flight, const struct device_launch *launch)
{
    bool is_same = launch->gk.problem.m == flight->n_expected;
    for (uint32_t i = 0; is_same && i < flight->n_expected; i++) {
        is_same = launch->gk.x_rows[i] == flight->expected[i].x &&
                  launch->gk.y_rows[i] == flight->expected[i].y;
    }
    return is_same;
}

/* ---- operations ---- */

static int ahead_arm(struct device *device, struct device_launch *launch, uint32_t limit_usec)
{
    (void)device;
    GD_ASSERT(find(launch) == NULL && launch->kernel != NULL && launch->gk.packed != NULL);
    GD_ASSERT(launch->gk.problem.m > 0 && launch->gk.problem.m <= GK_BATCH_ROWS_MAX);
    GD_ASSERT(launch->n_signals == 0 && limit_usec > 0);
    int r = add(launch, ARMED, limit_usec);
    if (r == 0) {
        ahead->n_armed++;
        expect(&flights[n_flights - 1], launch);
    }
    return r;
}

static void ahead_fire(struct device *device, struct device_launch *launch)
{
    (void)device;
    struct flight *flight = find(launch);
    GD_ASSERT(flight != NULL && !flight->is_fired);
    GD_ASSERT(flight->stage == ARMED || flight->has_begun);
    GD_ASSERT(flight->n_expected == 0 || is_as_expected(flight, launch));
    GD_ASSERT(launch->gk.problem.m > 0 && launch->gk.problem.m <= flight->n_rows_max);
    GD_ASSERT(launch->gk.x_rows != NULL && launch->gk.y_rows != NULL && !launch->has_cpu_rows);
    GD_ASSERT(launch->gk.x_scale_rows == NULL && launch->n_signals <= launch->gk.problem.m);
    uint32_t number = ++ahead->n_fired;
    bool is_lost = ahead->lose_every != 0 && number % ahead->lose_every == 0;
    flight->is_fired = true;
    launch->start_nsec = clock_now_nsec();
    if (flight->has_begun) {
        return;
    }
    flight->turn_nsec = 0;
    flight->stage = is_lost ? LOST : RUNNING;
    ahead->n_lost += is_lost;
}

static void ahead_disarm(struct device *device, struct device_launch *launch)
{
    (void)device;
    struct flight *flight = find(launch);
    GD_ASSERT(flight != NULL && !flight->is_fired);
    GD_ASSERT(flight->stage == ARMED || flight->has_begun);
    begin_if_it_can(flight); /* it is not seen at once */
    flight->stage = flight->has_begun ? RUNNING : DISARMED;
}

static void compute(struct device *device, struct device_launch *launch)
{
    uint64_t start_nsec = launch->start_nsec;
    GD_ASSERT(host->launch(device, launch) == 0);
    GD_ASSERT(host->poll(device) == launch);
    launch->start_nsec = start_nsec;
}

static void signal_all(const struct device_launch *launch)
{
    for (uint32_t i = 0; i < launch->n_signals; i++) {
        uint32_t *word = (uint32_t *)(uintptr_t)launch->signals[i].address;
        GD_ASSERT(*word != launch->signals[i].value); /* nothing is run twice */
        *word = launch->signals[i].value;
        ahead->on_signal(word);
    }
}

/* What became of the first in line; -EAGAIN: nothing yet. */
static int result_of(struct device *device, struct flight *flight)
{
    uint64_t now_nsec = clock_now_nsec();
    flight->turn_nsec = flight->turn_nsec != 0 ? flight->turn_nsec : now_nsec;
    if (ahead->is_lost) {
        return STATUS_DEVICE_LOST;
    }
    begin_if_it_can(flight);
    if (flight->stage == DISARMED || flight->stage == LOST) {
        return -ECANCELED;
    }
    if (flight->stage == ARMED) {
        bool is_over = ahead->is_deaf || now_nsec - flight->turn_nsec > flight->limit_nsec;
        return is_over ? -ECANCELED : -EAGAIN;
    }
    uint64_t end_nsec = num_max(flight->turn_nsec, flight->launch->start_nsec) +
                        AHEAD_RUN_USEC * (uint64_t)CLOCK_NSEC_PER_USEC;
    if (now_nsec < end_nsec) {
        return -EAGAIN;
    }
    if (flight->has_begun) {
        tell_rows(flight);
    }
    compute(device, flight->launch);
    return flight->launch->result;
}

/* The first in line is over. */
static struct device_launch *land(int result)
{
    struct device_launch *launch = flights[0].launch;
    bool was_begun_only = flights[0].has_begun && !flights[0].is_fired;
    if (result == 0) {
        signal_all(launch);
    }
    memmove(flights, flights + 1, --n_flights * sizeof(flights[0]));
    launch->result = result;
    launch->end_nsec = clock_now_nsec();
    launch->start_nsec = was_begun_only ? launch->end_nsec : launch->start_nsec;
    return launch;
}

static struct device_launch *ahead_poll(struct device *device)
{
    int result = n_flights > 0 ? result_of(device, &flights[0]) : -EAGAIN;
    struct device_launch *launch = result != -EAGAIN ? land(result) : NULL;
    if (ahead->on_poll != NULL) {
        ahead->on_poll(n_flights == 0);
    }
    return launch;
}

/* Clients' memory is the device's, as far as it says. */
static void ahead_region_place(struct device *device, const struct region *region,
                               struct device_place *ret_place)
{
    (void)device;
    *ret_place = (struct device_place){.space = {(uintptr_t)region->base, 1}};
}

void ahead_device_init(struct ahead_device *fresh, struct device *device)
{
    *fresh = (struct ahead_device){.ops = *device->ops};
    ahead = fresh;
    host = device->ops;
    n_flights = 0;
    fresh->ops.launch = ahead_launch;
    fresh->ops.arm = ahead_arm;
    fresh->ops.fire = ahead_fire;
    fresh->ops.disarm = ahead_disarm;
    fresh->ops.poll = ahead_poll;
    fresh->ops.region_place = ahead_region_place;
    device->has_mps = true;
    device->launches_max = RUNNING_MAX;
    device->ops = &fresh->ops;
}
