/* nearest.c - see nearest.h. Alike is what begins and ends alike: a name is mostly mistyped in one
 * place, cut short, or led by the wrong model. An edit distance would cost the product of the
 * lengths for each of thousands of names, on the thread that serves everybody. */
#include "daemon/weights/nearest.h"

#include <stdio.h>
#include <string.h>

void nearest_init(struct nearest *nearest, const char *wanted)
{
    *nearest = (struct nearest){.wanted = wanted};
}

static uint32_t score_of(const char *wanted, const char *name)
{
    size_t wanted_bytes = strlen(wanted);
    size_t name_bytes = strlen(name);
    size_t most = wanted_bytes < name_bytes ? wanted_bytes : name_bytes;
    size_t front = 0;
    size_t back = 0;
    while (front < most && wanted[front] == name[front]) {
        front++;
    }
    while (front + back < most && wanted[wanted_bytes - 1 - back] == name[name_bytes - 1 - back]) {
        back++;
    }
    return (uint32_t)(front + back);
}

void nearest_offer(struct nearest *nearest, const char *name)
{
    uint32_t score = score_of(nearest->wanted, name);
    uint32_t place = nearest->n;
    nearest->n_offered++;
    while (place > 0 && nearest->scores[place - 1] < score) {
        place--;
    }
    if (place == NEAREST_MAX) {
        return;
    }
    uint32_t n_kept = nearest->n < NEAREST_MAX ? nearest->n : NEAREST_MAX - 1;
    for (uint32_t i = n_kept; i > place; i--) {
        memcpy(nearest->names[i], nearest->names[i - 1], MSG_NAME_BYTES);
        nearest->scores[i] = nearest->scores[i - 1];
    }
    (void)snprintf(nearest->names[place], MSG_NAME_BYTES, "%s", name);
    nearest->scores[place] = score;
    nearest->n = n_kept + 1;
}

void nearest_append(const struct nearest *nearest, struct reason *why)
{
    if (!why) {
        return;
    }
    char names[NEAREST_MAX * (MSG_NAME_BYTES + 2)] = "";
    for (uint32_t i = 0; i < nearest->n; i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
                       nearest->names[i]);
    }
    char *end = why->text + strlen(why->text);
    size_t room = sizeof(why->text) - strlen(why->text);
    if (nearest->n_offered == 0) {
        (void)snprintf(end, room, "; there is none");
    } else if (nearest->n_offered > nearest->n) {
        (void)snprintf(end, room, "; there are %u, like %s", nearest->n_offered, names);
    } else {
        (void)snprintf(end, room, "; there %s %s", nearest->n == 1 ? "is" : "are", names);
    }
}
