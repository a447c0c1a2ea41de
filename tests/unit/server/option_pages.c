/* option_pages.c - see option_pages.h. */
#include "tests/unit/server/option_pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/config.h"

#define COLUMNS 98u

static void put_bounds(FILE *stream, const struct config_option *option)
{
    switch (option->type) {
    case CONFIG_TYPE_MODE:
        fprintf(stream, "octal, 0%jo to 0%jo", (uintmax_t)option->min, (uintmax_t)option->max);
        return;
    case CONFIG_TYPE_TEXT:
        fprintf(stream, "text, at most %ju bytes", (uintmax_t)option->max - 1);
        return;
    case CONFIG_TYPE_LIST:
        fprintf(stream, "list, one item a line, at most %ju", (uintmax_t)option->max);
        return;
    case CONFIG_TYPE_CHOICE:
        fprintf(stream, "%s", option->unit);
        return;
    default:
        fprintf(stream, "%s%s%s, %ju to %ju", config_type_name(option->type),
                option->unit[0] != '\0' ? " of " : "", option->unit, (uintmax_t)option->min,
                (uintmax_t)option->max);
    }
}

/* What happens at a limit; "" for other options. */
static void format_limit(char *text, size_t size_bytes, const struct config_option *option)
{
    text[0] = '\0';
    if (option->figure != NULL && option->over != 0) {
        (void)snprintf(text, size_bytes, " More is answered %s and counted in %s.",
                       status_name(option->over), option->figure);
    } else if (option->figure != NULL) {
        (void)snprintf(text, size_bytes, " Counted in %s.", option->figure);
    }
}

static void put_comment(FILE *stream, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t n_bytes = strcspn(text, " ");
        if (column == 0 || column + 1 + n_bytes > COLUMNS) {
            fputs(column == 0 ? "#" : "\n#", stream);
            column = 1;
        }
        fprintf(stream, " %.*s", (int)n_bytes, text);
        column += 1 + n_bytes;
        text += n_bytes + strspn(text + n_bytes, " ");
    }
    fputc('\n', stream);
}

static void put_conf_option(FILE *stream, const struct config_option *option)
{
    char text[1024];
    char limit[256];
    format_limit(limit, sizeof(limit), option);
    (void)snprintf(text, sizeof(text), "%s%s", option->doc, limit);
    fputc('\n', stream);
    put_comment(stream, text);
    fprintf(stream, "# (");
    put_bounds(stream, option);
    fprintf(stream, "%s)\n#%s =%s%s\n", option->is_reloadable ? "; reloadable" : "", option->name,
            option->initial[0] != '\0' ? " " : "", option->initial);
}

static void put_man_option(FILE *stream, const struct config_option *option)
{
    char limit[256];
    format_limit(limit, sizeof(limit), option);
    fprintf(stream, ".TP\n.B %s\n%s%s\n.br\n(", option->name, option->doc, limit);
    put_bounds(stream, option);
    fprintf(stream, "; default: %s%s)\n", option->initial[0] != '\0' ? option->initial : "empty",
            option->is_reloadable ? "; reloadable" : "");
}

static char *make_page(const char *head, void (*put)(FILE *, const struct config_option *))
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *stream = open_memstream(&text, &n_bytes);
    if (stream == NULL) {
        abort();
    }
    fputs(head, stream);
    uint32_t n;
    const struct config_option *options = config_options(&n);
    for (uint32_t i = 0; i < n; i++) {
        put(stream, &options[i]);
    }
    if (fclose(stream) != 0) {
        abort();
    }
    return text;
}

char *option_pages_conf(void)
{
    return make_page("# gemmd.conf - every option of gemmd with its default; see gemmd.conf(5).\n"
                     "# Lines are KEY = VALUE; a line that starts with '#' is a comment.\n"
                     "# yes may be written true or on as well, no false or off.\n"
                     "# SIGHUP takes over the options marked reloadable; others need a restart.\n",
                     put_conf_option);
}

char *option_pages_man(void)
{
    return make_page("", put_man_option);
}
