/* doctor.h - findings about the machine, and who makes them. */
#pragma once

#include <stdint.h>

#include "client/tool/tool.h"

enum finding_state {
    FINDING_OK,
    FINDING_WARNING, /* works, but slower or smaller than it could */
    FINDING_FAULT,   /* keeps gemmd, or its use of the GPU, from working */
};

struct finding {
    enum finding_state state;
    const char *subject; /* "mps"; static */
    char text[400];      /* what is the case */
    char mend[400];      /* what to do about it; "" when OK */
};

#define FINDINGS_MAX 96u

struct findings {
    struct finding items[FINDINGS_MAX];
    uint32_t n;
};

/* findings_add() - the next one, to be filled further by finding_mend(); what does not fit is cut.
 */
struct finding *findings_add(struct findings *findings, enum finding_state state,
                             const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void finding_mend(struct finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* doctor_ipc() - sharing memory with a child process; before doctor_gpu(), since a process that has
 * used CUDA must not fork. doctor_gpu() - driver, device nodes, GPUs, persistence, MPS. Works on a
 * machine without any of them. doctor_machine() - memfds, limits, memory locks. doctor_daemon() -
 * sockets, and the daemon behind. */
void doctor_ipc(struct findings *findings);
void doctor_gpu(struct findings *findings);
void doctor_machine(struct findings *findings);
void doctor_daemon(struct findings *findings, struct tool *tool);

/* Parts of the above. doctor_nodes(), doctor_persistence(), doctor_mps_user() - where a driver is
 * loaded. doctor_access() - of the sockets in dir. doctor_device_memory() - a buffer of a device of
 * the daemon that tool->client is connected to. */
void doctor_nodes(struct findings *findings);
void doctor_persistence(struct findings *findings);
void doctor_mps_user(struct findings *findings);
void doctor_access(struct findings *findings, const char *dir);
void doctor_device_memory(struct findings *findings, struct tool *tool, uint32_t i_device,
                          const char *name);
