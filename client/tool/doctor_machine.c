/* doctor_machine.c - what gemmd asks of the machine beside a GPU, and the daemon itself. */
#include "client/tool/doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS_WANTED     4096u
#define MEMLOCK_WANTED (64ull << 20)
#define LOCK_BYTES     65536u

/* ---- the machine ---- */

static void check_memfd(struct findings *findings)
{
    struct region region = REGION_NULL;
    int r = region_create(&region, "gemmctl-doctor", 4096);
    if (r == 0) {
        region_finish(&region);
        (void)findings_add(findings, FINDING_OK, "memfd", "sealed memfds can be made and mapped");
        return;
    }
    finding_mend(
        findings_add(findings, FINDING_FAULT, "memfd", "no sealed memfd: %s", strerror(-r)),
        "a kernel from 3.17 on, a sandbox that allows memfd_create, and free memory");
}

static void check_limit(struct findings *findings, int resource, const char *subject,
                        unsigned long long wanted, const char *what, const char *mend)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) {
        return;
    }
    bool is_enough = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted;
    char amount[32] = "unlimited";
    if (limit.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(amount, sizeof(amount), "%llu", (unsigned long long)limit.rlim_cur);
    }
    struct finding *finding = findings_add(findings, is_enough ? FINDING_OK : FINDING_WARNING,
                                           subject, "%s: %s", what, amount);
    if (!is_enough) {
        finding_mend(finding, "%s", mend);
    }
}

/* Whether locking works at all, whatever the limit says: gemmd locks host buffers of a GPU. */
static void check_locking(struct findings *findings)
{
    struct region region = REGION_NULL;
    if (region_create(&region, "gemmctl-doctor", LOCK_BYTES) != 0) {
        return; /* check_memfd() has said so */
    }
    if (mlock(region.base, LOCK_BYTES) == 0) {
        (void)findings_add(findings, FINDING_OK, "memlock", "shared memory can be locked");
    } else {
        finding_mend(findings_add(findings, FINDING_WARNING, "memlock",
                                  "%u bytes of shared memory cannot be locked: %s", LOCK_BYTES,
                                  strerror(errno)),
                     "ulimit -l unlimited, or LimitMEMLOCK=infinity of the unit");
    }
    region_finish(&region);
}

void doctor_machine(struct findings *findings)
{
    check_memfd(findings);
    check_limit(findings, RLIMIT_NOFILE, "fds", FDS_WANTED, "open files of a process",
                "ulimit -n 65536, or LimitNOFILE= of the unit: each session, lane and buffer takes "
                "some");
    check_locking(findings);
    if (access("/dev/nvidiactl", F_OK) == 0) {
        check_limit(findings, RLIMIT_MEMLOCK, "memlock", MEMLOCK_WANTED,
                    "bytes that a process may lock in memory",
                    "ulimit -l unlimited, or LimitMEMLOCK=infinity of the unit: host buffers of a "
                    "GPU are page-locked");
    }
}

/* ---- the daemon ---- */

/* Why there is no answer: nobody gives one, or a daemon refuses. */
static void explain_failure(struct findings *findings, int status, const char *text)
{
    const char *mend = "see what the daemon logs";
    if (status == GEMMD_QUOTA) {
        mend = "end clients, or raise that limit in gemmd.conf and send SIGHUP; gemmctl ready and "
               "gemmctl top work meanwhile";
    } else if (status == GEMMD_DISCONNECTED || status == GEMMD_PERMISSION) {
        mend = "start gemmd, with the same --socket-dir; as another user, set socket_mode = 0660 "
               "and be in its group";
    }
    finding_mend(findings_add(findings, FINDING_WARNING, "daemon", "%s", text), "%s", mend);
}

/* What the daemon says of its devices and its descriptors. */
static void judge_status(struct findings *findings, struct tool *tool, const char *json)
{
    json_t *document = json_loads(json, 0, NULL);
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(document, "devices"), i, device)
    {
        const char *name = json_string_value(json_object_get(device, "name"));
        const char *what = json_string_value(json_object_get(device, "description"));
        bool lacks_mps = what && strstr(what, "no MPS") != NULL;
        struct finding *finding =
            findings_add(findings, lacks_mps ? FINDING_WARNING : FINDING_OK, "daemon",
                         "owns %s: %s", name ? name : "?", what ? what : "?");
        if (lacks_mps) {
            finding_mend(finding, "start MPS first, then gemmd: see mps");
        }
        doctor_device_memory(findings, tool, (uint32_t)i, name ? name : "?");
    }
    json_int_t limit =
        json_integer_value(json_object_get(json_object_get(document, "fds"), "limit"));
    if (limit > 0 && limit < (json_int_t)FDS_WANTED) {
        finding_mend(findings_add(findings, FINDING_WARNING, "daemon",
                                  "it may open %lld files at most", (long long)limit),
                     "LimitNOFILE=65536 of the unit, or ulimit -Hn where it is started");
    }
    json_decref(document);
}

void doctor_daemon(struct findings *findings, struct tool *tool)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = tool->socket_dir;
    options.name = "gemmctl";
    char dir[CLIENT_DIR_BYTES];
    if (client_socket_dir(tool->socket_dir, dir, sizeof(dir)) == 0) {
        doctor_access(findings, dir);
    }
    int r = gemmd_open(&options, &tool->client);
    if (r != GEMMD_OK) {
        explain_failure(findings, r, gemmd_last_error());
        return;
    }
    struct msg_request request = {.verb = MSG_VERB_STATUS};
    struct msg_reply reply = MSG_REPLY_NULL;
    r = control_call(tool->client, &request, &reply);
    if (r != 0 || reply.body != MSG_BODY_STATUS) {
        explain_failure(findings, r, gemmd_last_error());
    } else {
        judge_status(findings, tool, reply.json);
    }
    msg_reply_finish(&reply);
}
