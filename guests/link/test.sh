#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the messages of memory links on the host: guests/link/test.sh [OUT_DIR]. Once with the address and undefined
# behaviour sanitizers, once with that for data races. HOSTCC chooses the compiler (default gcc).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/guests/link}
mkdir -p "$out"

for sanitizers in address,undefined thread; do
    # Fences are not known to the sanitizer of data races; what they order are atomics only.
    "${HOSTCC:-gcc}" -std=gnu11 -g -O1 "-fsanitize=$sanitizers" -fno-sanitize-recover=all -Wall -Wextra -Werror \
        -Wshadow -Wconversion -Wno-tsan "$here/test.c" -lpthread -o "$out/host-tests"
    "$out/host-tests"
done
