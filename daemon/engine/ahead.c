/* ahead.c - see ahead.h. A lap is a whole number of passes, since the weights of a pass are not
 * alike. Pauses, as between two sentences, are no steps. Means are of about the last two laps: how
 * many sessions there are changes them more than anything. */
#include "daemon/engine/ahead.h"

#include "ipc/base/clock.h"

#define LAP_LAUNCHES_MIN 32u
#define PAUSE_NSEC       (1u * (uint64_t)CLOCK_NSEC_PER_MSEC)
#define WEIGHT_OF_NEW    0.5f
#define FIRST_LAPS       4u /* in turn without and with */
#define RETRY_LAPS       32u
#define GAIN_MIN         0.02f
#define MISSES_MAX       4u /* in a lap, and a quarter of its launches */

static bool does_pay(const struct ahead *ahead)
{
    return ahead->step_nsec[true] < (1 - GAIN_MIN) * ahead->step_nsec[false];
}

static void begin_lap(struct ahead *ahead)
{
    bool is_trial = ahead->n_laps % RETRY_LAPS == RETRY_LAPS - 1;
    ahead->is_on =
        ahead->n_laps < FIRST_LAPS ? ahead->n_laps % 2 == 1 : does_pay(ahead) != is_trial;
    ahead->n_launches = 0;
    ahead->n_missed = 0;
    ahead->n_steps = 0;
    ahead->steps_nsec = 0;
}

static void end_lap(struct ahead *ahead)
{
    float *mean = &ahead->step_nsec[ahead->is_on];
    if (ahead->n_steps > 0) {
        float sample = (float)ahead->steps_nsec / (float)ahead->n_steps;
        *mean += (*mean == 0 ? 1 : WEIGHT_OF_NEW) * (sample - *mean);
    }
    ahead->n_laps++;
}

void ahead_launched(struct ahead *ahead, uint32_t n_nodes, uint64_t now_nsec)
{
    uint64_t step_nsec = now_nsec - ahead->latest_nsec;
    if (ahead->latest_nsec != 0 && step_nsec < PAUSE_NSEC) {
        ahead->n_steps++;
        ahead->steps_nsec += step_nsec;
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

bool ahead_is_on(const struct ahead *ahead)
{
    return ahead->is_on && ahead->n_missed < MISSES_MAX + ahead->n_launches / 4;
}
