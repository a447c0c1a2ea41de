/* session_side_ask.c - what handlers of several kinds of questions need. See
 * session_side_internal.h. */
#include "daemon/server/session_side_internal.h"

#include "daemon/server/accept_guard.h"

int ask_device(const struct ask *ask, uint32_t index, struct device **ret_device,
               struct reason *why)
{
    if (index >= ask->core->n_devices) {
        return reason_set(why, STATUS_NOT_FOUND, "device %u: this daemon owns %u", index,
                          ask->core->n_devices);
    }
    *ret_device = ask->core->devices[index];
    return 0;
}

/* Connections to the control socket are under no quota: with many of them, accounts have room and
 * the process has not. What is left then is the daemon's own, and administrators'. */
int ask_check_descriptor(int fd, struct reason *why)
{
    if (fd < 0 || !accept_guard_is_kept(fd)) {
        return 0;
    }
    return reason_set(why, STATUS_QUOTA,
                      "no descriptor is left for clients of the %ju that the daemon may open "
                      "(LimitNOFILE=, ulimit -n)",
                      (uintmax_t)accept_guard_limit());
}
