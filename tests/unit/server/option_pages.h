/* option_pages.h - what deploy/gemmd.conf and the table of gemmd.conf(5) have to say, made from the
 * option table. */
#pragma once

/* Both give malloc'd text. */
char *option_pages_conf(void);
char *option_pages_man(void);
