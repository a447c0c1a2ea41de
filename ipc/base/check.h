/* check.h - attributes and assertions shared by every folder. */
#pragma once

#define GD_MUST_CHECK __attribute__((warn_unused_result))
#define GD_UNUSED     __attribute__((unused))
#define GD_PUBLIC     __attribute__((visibility("default")))

/* GD_ASSERT() - for our own bugs only, never for anything a client can cause. Stays on in release:
 * prints file, line and expression and aborts. */
#define GD_ASSERT(expression)                                                                      \
    ((expression) ? (void)0 : check_failed(#expression, __FILE__, __LINE__))

/* check_failed() - what a broken GD_ASSERT() calls. */
_Noreturn void check_failed(const char *expression, const char *file, int line);
