/* explain.h - the parts of gemmctl explain. */
#pragma once

#include <stdio.h>

#include "client/tool/tool.h"

/* explain_others() - the kernels that were not taken, each once, those with the same reason in one
 * line. A reason that depends on the number of rows says for which it is. An enum tool_exit. */
int explain_others(FILE *stream, const struct msg_choice *choices, uint32_t n_choices);
