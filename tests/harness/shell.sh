#!/usr/bin/env bash
# What tests written in bash share: to be sourced.
set -euo pipefail

# skip REASON: this machine cannot run it.
skip() {
    echo "skipped: $1"
    exit 77
}

# until_true SECONDS COMMAND...: as soon as it succeeds.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
