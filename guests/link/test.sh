#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the messages of memory links: guests/link/test.sh [OUT_DIR]. On the host once with the address and undefined
# behaviour sanitizers, once with that for data races, and with both ends access by access (model.c). On QEMU, the accesses
# that a compiler for AArch64 makes of them (accesses.c). HOSTCC chooses the host's compiler (default gcc), CROSS_COMPILE the
# other (default aarch64-linux-gnu-).
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

"${HOSTCC:-gcc}" -std=gnu11 -g -O2 -Wall -Wextra -Werror -Wshadow \
    -U_FORTIFY_SOURCE "$here/model.c" -o "$out/model"
"$out/model"

prefix=${CROSS_COMPILE:-aarch64-linux-gnu-}
bare="-std=gnu11 -ffreestanding -fno-pic -fno-pie -fno-stack-protector -mno-outline-atomics -Wall -Wextra -Werror"
rm -f "$out"/accesses*.o
# shellcheck disable=SC2086 # lists of flags
{
    "${prefix}gcc" -c "$here/accesses.S" -o "$out/accesses-start.o"
    "${prefix}gcc" $bare -O1 -mgeneral-regs-only -c "$here/accesses.c" -o "$out/accesses.o"
    for options in -O0 -O1 -O2 -O3 -Os "-O2 -mgeneral-regs-only"; do
        name=$(echo "$options" | tr -d ' ')
        "${prefix}gcc" $bare $options "-DVARIANT=\"$options\"" -c "$here/accesses.c" -o "$out/accesses$name.o"
    done
}
"${prefix}gcc" -nostdlib -static -no-pie -Wl,--build-id=none -Wl,-Ttext=0x40080000 -Wl,-z,noexecstack \
    "$out"/accesses*.o -o "$out/accesses.elf"
timeout 60 qemu-system-aarch64 -M virt -cpu max -display none -serial stdio -monitor none \
    -kernel "$out/accesses.elf" | tee "$out/accesses.log"
grep -q "^guests/link accesses: all right" "$out/accesses.log"
