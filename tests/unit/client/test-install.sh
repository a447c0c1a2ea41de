#!/usr/bin/env bash
# Install into a scratch prefix, then build and run a program against it as users do: once with pkg-config, once
# with find_package(). No daemon is there, so the program has to say DISCONNECTED.
set -euo pipefail
if [ -n "${GEMMD_SANITIZE:-}" ]; then
    echo "a sanitized library needs a sanitized program: skipped"
    exit 77
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
cmake --install "$GEMMD_BUILD_DIR" --prefix "$prefix" >"$scratch/install.log"

cat >"$scratch/first.c" <<'C'
#include <gemmd.h>
#include <stdio.h>

int main(void)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client = NULL;
    options.socket_dir = "/nonexistent";
    int r = gemmd_open(&options, &client);
    printf("%s %s\n", gemmd_version(), gemmd_status_name(r));
    gemmd_close(client);
    return 0;
}
C
cat >"$scratch/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(first LANGUAGES C)
find_package(gemmd 0.1 REQUIRED)
add_executable(first first.c)
target_link_libraries(first PRIVATE gemmd::gemmd)
C

check() {
    local said
    said=$("$@")
    if [ "$said" != "0.1.0 DISCONNECTED" ]; then
        echo "test-install: the program built with ${1##*/} says '$said'" >&2
        exit 1
    fi
}

pc=$(find "$prefix" -name gemmd.pc -printf '%h')
export PKG_CONFIG_PATH=$pc
# shellcheck disable=SC2046 # flags are words
cc -Wall -Werror -o "$scratch/with-pkg-config" "$scratch/first.c" $(pkg-config --cflags --libs gemmd)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir gemmd) check "$scratch/with-pkg-config"

cmake -S "$scratch" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/cmake.log"
cmake --build "$scratch/build" >>"$scratch/cmake.log"
check "$scratch/build/first"

for option in --help --version --usage; do
    status=0
    "$prefix/bin/gemmctl" "$option" >/dev/full 2>"$scratch/full.log" || status=$?
    if [ "$status" -ne 5 ] || [ "$(grep -c 'cannot write standard output' "$scratch/full.log")" -ne 1 ]; then
        echo "test-install: gemmctl $option to a full disk ends with $status and says: $(cat "$scratch/full.log")" >&2
        exit 1
    fi
done

conf=$prefix/etc/gemmd/gemmd.conf
cmp -s "$conf" "$GEMMD_SOURCE_DIR/deploy/gemmd.conf" || { echo "test-install: gemmd.conf is not installed" >&2; exit 1; }
echo "threads = 1" >"$conf"
cmake --install "$GEMMD_BUILD_DIR" --prefix "$prefix" >"$scratch/install.log"
if [ "$(cat "$conf")" != "threads = 1" ]; then
    echo "test-install: installing again replaced an edited gemmd.conf" >&2
    exit 1
fi
DESTDIR=$scratch/root cmake --install "$GEMMD_BUILD_DIR" --prefix "$prefix" >"$scratch/install.log"
if [ ! -s "$scratch/root$conf" ]; then
    echo "test-install: with a DESTDIR, gemmd.conf is not installed below it" >&2
    exit 1
fi

"$prefix/bin/gemmctl" --help | grep -q '^  explain '
if "$prefix/bin/gemmd" --help | sed '1,/^Options of the configuration file/d' | grep -nv '^  \( \{4\}\)\?[^ ]' ||
    "$prefix/bin/gemmd" --help | grep -n '^.\{81\}'; then
    echo "test-install: these lines of gemmd --help are not indented, or longer than 80 characters" >&2
    exit 1
fi
for page in man1/gemmctl.1 man3/libgemmd.3; do
    [ -s "$prefix/share/man/$page" ] || { echo "test-install: $page is not installed" >&2; exit 1; }
done
