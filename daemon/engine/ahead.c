/* ahead.c - see ahead.h. A lap is a whole number of passes, since the weights of a pass are not
 * alike. A pause, as between two sentences, counts as a millisecond, in every way alike; so does a
 * stall, which a way may be to blame for. Means are of about the last two laps: how many sessions
 * there are changes them more than anything. */
#include "daemon/engine/ahead.h"

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#define LAP_LAUNCHES_MIN 32u
#define STEP_NSEC_MAX    (1u * (uint64_t)CLOCK_NSEC_PER_MSEC)
#define WEIGHT_OF_NEW    0.5f
#define FIRST_LAPS       (2u * AHEAD_WAYS) /* each way twice */
#define RETRY_LAPS       32u
#define GAIN_MIN         0.02f /* over a way that takes less of the GPU */
#define MISSES_MAX       4u    /* in a lap, and a quarter of its launches */

static enum ahead_way best_way(const struct ahead *ahead)
{
    enum ahead_way best = AHEAD_NOT;
    for (uint32_t way = AHEAD_IN_LINE; way < AHEAD_WAYS; way++) {
        if (ahead->step_nsec[way] < (1 - GAIN_MIN) * ahead->step_nsec[best]) {
            best = (enum ahead_way)way;
        }
    }
    return best;
}

static enum ahead_way next_way(const struct ahead *ahead)
{
    if (ahead->n_laps < FIRST_LAPS) {
        return (enum ahead_way)(ahead->n_laps % AHEAD_WAYS);
    }
    enum ahead_way best = best_way(ahead);
    if (ahead->n_laps % RETRY_LAPS != 0) {
        return best;
    }
    uint32_t n_further = 1 + ahead->n_laps / RETRY_LAPS % (AHEAD_WAYS - 1);
    return (enum ahead_way)((best + n_further) % AHEAD_WAYS);
}

static void begin_lap(struct ahead *ahead)
{
    ahead->way = next_way(ahead);
    ahead->n_launches = 0;
    ahead->n_missed = 0;
    ahead->n_steps = 0;
    ahead->steps_nsec = 0;
}

static void end_lap(struct ahead *ahead)
{
    float *mean = &ahead->step_nsec[ahead->way];
    if (ahead->n_steps > 0) {
        float sample = (float)ahead->steps_nsec / (float)ahead->n_steps;
        *mean += (*mean == 0 ? 1 : WEIGHT_OF_NEW) * (sample - *mean);
    }
    ahead->n_laps++;
}

void ahead_launched(struct ahead *ahead, uint32_t n_nodes, uint64_t now_nsec)
{
    uint64_t step_nsec = now_nsec - ahead->latest_nsec;
    if (ahead->latest_nsec != 0) {
        ahead->n_steps++;
        ahead->steps_nsec += num_min(step_nsec, STEP_NSEC_MAX);
    }
    ahead->latest_nsec = now_nsec;
    ahead->n_launches++;
    if (ahead->n_launches >= LAP_LAUNCHES_MIN && ahead->n_launches % n_nodes == 0) {
        end_lap(ahead);
        begin_lap(ahead);
    }
}

void ahead_missed(struct ahead *ahead)
{
    ahead->n_missed++;
}

enum ahead_way ahead_now(const struct ahead *ahead)
{
    return ahead->n_missed < MISSES_MAX + ahead->n_launches / 4 ? ahead->way : AHEAD_NOT;
}
