/* top_screen.c - the terminal of gemmctl top. */
#include <ncurses.h>
#include <string.h>
#include <unistd.h>

#include "client/tool/top.h"

bool top_screen_begin(void)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !initscr()) {
        return false;
    }
    (void)raw(); /* so that Ctrl-C comes as a key, and the terminal is given back */
    (void)noecho();
    (void)curs_set(0);
    return true;
}

/* Headings are in capitals throughout. */
static bool is_heading(const char *line)
{
    return strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") >= 3;
}

void top_screen_show(const char *text)
{
    (void)erase();
    for (int row = 0; *text != '\0' && row < LINES; row++) {
        size_t n_bytes = strcspn(text, "\n");
        if (is_heading(text)) {
            (void)attron(A_BOLD);
        }
        (void)mvaddnstr(row, 0, text, (int)n_bytes < COLS ? (int)n_bytes : COLS);
        (void)attroff(A_BOLD);
        text += n_bytes + (text[n_bytes] == '\n');
    }
    (void)refresh();
}

bool top_screen_wait(uint32_t timeout_msec)
{
    timeout((int)timeout_msec);
    int key = getch();
    return key != 'q' && key != 'Q' && key != 3;
}

void top_screen_end(void)
{
    (void)endwin();
}
