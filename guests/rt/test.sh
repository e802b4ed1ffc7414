#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the guest's pure parts on the host, with the address and undefined behaviour sanitizers:
# guests/rt/test.sh [OUT_DIR]. HOSTCC chooses the compiler (default gcc).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/guests/rt}
mkdir -p "$out"

"${HOSTCC:-gcc}" -std=gnu11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
    -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes -Wstrict-prototypes \
    -I"$here/app" -I"$here/platform" -I"$here/tests" \
    "$here"/tests/*.c "$here/app/accounting.c" "$here/app/bootargs.c" "$here/app/histogram.c" \
    "$here/platform/duechain.c" "$here/platform/fdt.c" "$here/platform/virtqueue.c" -o "$out/host-tests"
"$out/host-tests"
