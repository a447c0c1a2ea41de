/* page.h - the page for browsers: page.html as text, made by the build. */
#pragma once

extern const char page_html[];
