/* build_id.h - which build of the program runs: the linker's digest of it, by which debuggers and
 * symbol servers know it, too. */
#pragma once

/* build_id() - 40 hex digits; "unknown" in a program that was linked without. Static. Any thread,
 * after its first call. */
const char *build_id(void);
