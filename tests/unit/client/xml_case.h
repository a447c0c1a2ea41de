/* xml_case.h - is a text well-formed XML, of the kind that we write: elements, attributes in double
 * quotes, the five entities, one declaration. Assertions are cmocka's. */
#pragma once

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define XML_DEPTH_MAX 16

static inline bool xml_is_entity(const char *at)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&apos;"};
    for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++) {
        if (strncmp(at, entities[i], strlen(entities[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Behind the tag that starts at '<'; NULL: it is none. */
static inline const char *xml_tag_end(const char *at)
{
    bool is_quoted = false;
    for (at++; *at && (is_quoted || *at != '>'); at++) {
        is_quoted ^= *at == '"';
        if (*at == '<' || (*at == '&' && !xml_is_entity(at))) {
            return NULL;
        }
    }
    return *at == '>' ? at + 1 : NULL;
}

static inline bool xml_is_same_name(const char *a, const char *b)
{
    while (isalnum((unsigned char)*a) && *a == *b) {
        a++;
        b++;
    }
    return !isalnum((unsigned char)*a) && !isalnum((unsigned char)*b);
}

/* NULL: well-formed; else where it is not. */
static inline const char *xml_fault(const char *text)
{
    const char *open[XML_DEPTH_MAX];
    int depth = 0, n_roots = 0;
    const char *at = strncmp(text, "<?xml ", 6) == 0 ? strchr(text, '>') + 1 : text;
    while (*at) {
        if (*at != '<') {
            bool is_stray = (*at == '&' && !xml_is_entity(at)) ||
                            (depth == 0 && !isspace((unsigned char)*at)) || *at == '>';
            if (is_stray) {
                return at;
            }
            at++;
            continue;
        }
        const char *end = xml_tag_end(at);
        if (!end) {
            return at;
        }
        if (at[1] == '/') {
            if (depth == 0 || !xml_is_same_name(open[--depth], at + 2)) {
                return at;
            }
        } else if (end[-2] != '/') {
            n_roots += depth == 0;
            if (depth == XML_DEPTH_MAX) {
                return at;
            }
            open[depth++] = at + 1;
        }
        at = end;
    }
    return depth == 0 && n_roots == 1 ? NULL : at;
}
