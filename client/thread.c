/* thread.c - threads of the library's own. Signals are the program's: none is taken by them. */
#include <signal.h>

#include "client/client.h"

int thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(ret_thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error != 0 ? client_fail_errno(-error, "starting a thread") : 0;
}
