/* doctor.c - what is wrong with this machine, or could be better, and the mend for each. */
#include "client/tool/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const state_names[] = {"ok", "warning", "fault"};

struct finding *findings_add(struct findings *findings, enum finding_state state,
                             const char *subject, const char *format, ...)
{
    va_list args;
    GD_ASSERT(findings->n < FINDINGS_MAX);
    struct finding *finding = &findings->items[findings->n++];
    *finding = (struct finding){.state = state, .subject = subject};
    va_start(args, format);
    (void)vsnprintf(finding->text, sizeof(finding->text), format, args);
    va_end(args);
    return finding;
}

void finding_mend(struct finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(finding->mend, sizeof(finding->mend), format, args);
    va_end(args);
}

static uint32_t count(const struct findings *findings, enum finding_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < findings->n; i++) {
        n += findings->items[i].state == state;
    }
    return n;
}

static void print_text(const struct findings *findings)
{
    for (uint32_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->items[i];
        (void)printf("%-8s %-8s %s\n", state_names[finding->state], finding->subject,
                     finding->text);
        if (finding->mend[0] != '\0') {
            (void)printf("         mend:    %s\n", finding->mend);
        }
    }
    uint32_t n_faults = count(findings, FINDING_FAULT);
    uint32_t n_warnings = count(findings, FINDING_WARNING);
    (void)printf("%u fault%s, %u warning%s\n", n_faults, n_faults == 1 ? "" : "s", n_warnings,
                 n_warnings == 1 ? "" : "s");
}

static int print_json(const struct findings *findings)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->items[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s}", "state", state_names[finding->state], "subject",
                            finding->subject, "text", finding->text, "mend", finding->mend));
    }
    return tool_print_json(json_pack("{s:o, s:i, s:i}", "findings", list, "faults",
                                     (int)count(findings, FINDING_FAULT), "warnings",
                                     (int)count(findings, FINDING_WARNING)));
}

int command_doctor(struct tool *tool, int argc, char **argv)
{
    (void)argv;
    if (argc != 1) {
        return tool_usage("doctor takes no arguments");
    }
    struct findings *findings = calloc(1, sizeof(*findings));
    if (!findings) {
        return tool_fail(client_refuse(STATUS_NO_MEMORY, "doctor: out of memory"));
    }
    doctor_ipc(findings);
    doctor_machine(findings);
    doctor_gpu(findings);
    doctor_daemon(findings, tool);
    int r = TOOL_DONE;
    if (tool->is_json) {
        r = print_json(findings);
    } else {
        print_text(findings);
    }
    bool has_faults = count(findings, FINDING_FAULT) > 0;
    free(findings);
    return r == TOOL_DONE && has_faults ? TOOL_FAILED : r;
}
