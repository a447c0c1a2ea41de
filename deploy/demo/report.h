/* report.h - what the demo prints. */
#ifndef DEPLOY_DEMO_REPORT_H
#define DEPLOY_DEMO_REPORT_H

#include <stdbool.h>

#include "deploy/demo/walker.h"

/* report_residency() - ask the daemon what the model takes, and print it against a copy a process.
 * Return: false after saying why, when the daemon cannot be asked. */
bool report_residency(const struct walk_plan *plan);

/* report_walks() - print speed, batching and errors of all walkers, and PASS or FAIL.
 * Return: true for PASS: every walker ended well and every element was within its tolerance. */
bool report_walks(const struct walk_plan *plan, const struct walk *walks);

#endif
