/* control_guard.h - how many connections to the control socket one user may have.
 *
 * Whoever may connect there holds a descriptor of the daemon's before he has said who he is, and
 * libzmq, which closes them, tells nobody. So connections are counted by the user at their other
 * end when they are accepted, and those that have been closed are noticed when a user is at his
 * limit: the number is free, or is another socket's.
 *
 * Threads: admit: libzmq's I/O thread. The limit: any. Finish while nothing is accepted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* control_guard_set_limit() - from now on; what is open stays. 0, as at first: there is none. */
void control_guard_set_limit(uint64_t n_connections);
void control_guard_finish(void);

/* control_guard_admit() - count a new connection; false when its user has as many as he may. */
bool control_guard_admit(int connection);
