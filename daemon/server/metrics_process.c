/* metrics_process.c - what dashboards expect of every process, under the names they expect. */
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "daemon/server/accept_guard.h"
#include "ipc/base/clock.h"

#include "daemon/server/metrics_internal.h"

/* On the clock of people; it moves when somebody sets that clock, so it is worked out once. */
static double start_seconds(const struct core *core)
{
    static double start;
    struct timespec now;
    if (start == 0) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        start = (double)now.tv_sec + (double)now.tv_nsec / 1e9 -
                (double)(clock_now_nsec() - core->start_nsec) / 1e9;
    }
    return start;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Bytes of size and of resident memory; 0 where /proc does not tell. */
static void read_memory(double *ret_virtual, double *ret_resident)
{
    unsigned long long n_virtual = 0, n_resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &n_virtual, &n_resident) != 2) {
            n_virtual = n_resident = 0;
        }
        (void)fclose(file);
    }
    double page_bytes = (double)sysconf(_SC_PAGESIZE);
    *ret_virtual = (double)n_virtual * page_bytes;
    *ret_resident = (double)n_resident * page_bytes;
}

void metrics_process(struct openmetrics *om, const struct core *core)
{
    double n_virtual, n_resident;
    read_memory(&n_virtual, &n_resident);
    const struct {
        enum openmetrics_kind kind;
        const char *name, *help;
        double value;
    } rows[] = {
        {OPENMETRICS_GAUGE, "process_start_time_seconds", "When it started, since 1970.",
         start_seconds(core)},
        {OPENMETRICS_COUNTER, "process_cpu_seconds", "CPU time used.", cpu_seconds()},
        {OPENMETRICS_GAUGE, "process_virtual_memory_bytes", "Size of its address space.",
         n_virtual},
        {OPENMETRICS_GAUGE, "process_resident_memory_bytes", "Memory in use.", n_resident},
        {OPENMETRICS_GAUGE, "process_open_fds", "Descriptors that are open.",
         (double)accept_guard_used()},
        {OPENMETRICS_GAUGE, "process_max_fds", "Descriptors that may be open.",
         (double)accept_guard_limit()},
    };
    const struct openmetrics_labels none = OPENMETRICS_LABELS_NONE;
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        openmetrics_family(om, rows[i].kind, rows[i].name, rows[i].help);
        openmetrics_real(om, &none, rows[i].value);
    }
}
