/* config_file.c - the parser of configuration files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/server/config.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cut blanks off both ends, in place. */
static char *trim(char *text)
{
    while (is_blank(*text)) {
        text++;
    }
    size_t n_bytes = strlen(text);
    while (n_bytes > 0 && is_blank(text[n_bytes - 1])) {
        text[--n_bytes] = '\0';
    }
    return text;
}

/* The folder that a relative path would start from is not known here: nobody wrote it down. */
static int check_path(const struct config_option *option, const char *value, struct reason *why)
{
    if (!option->is_path || value[0] == '\0' || value[0] == '/') {
        return 0;
    }
    bool is_quoted = value[0] == '"' || value[0] == '\'';
    return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: %.64s %s", option->name, value,
                      is_quoted ? "is in quotes, which would be part of the path"
                                : "is not an absolute path");
}

static int parse_line(struct config *config, char *line, uint32_t i_line,
                      uint32_t *lines_of_options, struct reason *why)
{
    uint32_t n_options;
    char *key = trim(line);
    if (key[0] == '\0' || key[0] == '#') {
        return 0;
    }
    char *equals = strchr(key, '=');
    if (equals == NULL) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "'%.64s' is not KEY = VALUE", key);
    }
    *equals = '\0';
    key = trim(key);
    const struct config_option *option = config_find(key);
    if (option == NULL) {
        return config_no_option(key, why);
    }
    uint32_t *earlier = &lines_of_options[option - config_options(&n_options)];
    if (*earlier != 0 && option->type != CONFIG_TYPE_LIST) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s was set in line %u already", key,
                          *earlier);
    }
    *earlier = i_line;
    config->i_line = i_line;
    const char *value = trim(equals + 1);
    int r = check_path(option, value, why);
    r = r != 0 ? r : config_set(config, key, value, why);
    config->i_line = 0;
    return r;
}

int config_parse(struct config *config, const char *file_name, const char *text, size_t n_bytes,
                 struct reason *why)
{
    uint32_t lines_of_options[CONFIG_OPTIONS_MAX] = {0};
    uint32_t i_line = 0;
    (void)snprintf(config->file_name, sizeof(config->file_name), "%s", file_name);
    /* Some editors begin a file with a mark of its byte order, which nobody sees. */
    bool has_mark = n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
    for (size_t at = has_mark ? 3 : 0; at < n_bytes;) {
        const char *end = memchr(text + at, '\n', n_bytes - at);
        size_t line_bytes = end != NULL ? (size_t)(end - text) - at : n_bytes - at;
        CLEAN_FREE char *line = strndup(text + at, line_bytes);
        if (line == NULL) {
            return err_raise(-ENOMEM);
        }
        i_line++;
        int r = strlen(line) == line_bytes
                    ? parse_line(config, line, i_line, lines_of_options, why)
                    : reason_set(why, STATUS_INVALID_ARGUMENT, "the line has a zero byte in it");
        if (r > 0) {
            reason_prefix(why, "%.128s:%u", file_name, i_line);
        }
        if (r != 0) {
            return r;
        }
        at += line_bytes + 1;
    }
    return 0;
}

/* Read until the end; the cap keeps /dev/zero from filling memory. */
static int read_whole(int fd, char *text, size_t size_bytes, size_t *ret_n_bytes)
{
    size_t n_bytes = 0;
    while (n_bytes < size_bytes) {
        ssize_t n = read(fd, text + n_bytes, size_bytes - n_bytes);
        if (n < 0 && errno != EINTR) {
            return err_raise(-errno);
        }
        if (n == 0) {
            break;
        }
        n_bytes += n > 0 ? (size_t)n : 0;
    }
    *ret_n_bytes = n_bytes;
    return 0;
}

int config_load(struct config *config, const char *path, struct reason *why)
{
    CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%.200s: %s",
                          path[0] != '\0' ? path : "a file without a name", strerror(errno));
    }
    CLEAN_FREE char *text = malloc(CONFIG_FILE_BYTES_MAX + 1);
    if (text == NULL) {
        return err_raise(-ENOMEM);
    }
    size_t n_bytes = 0;
    int r = read_whole(fd, text, CONFIG_FILE_BYTES_MAX + 1, &n_bytes);
    if (r < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%.200s: %s", path, strerror(-r));
    }
    if (n_bytes > CONFIG_FILE_BYTES_MAX) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%.200s: over %u bytes", path,
                          CONFIG_FILE_BYTES_MAX);
    }
    return config_parse(config, path, text, n_bytes, why);
}
