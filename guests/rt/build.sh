#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the real-time guest: guests/rt/build.sh [OUT_DIR] -> OUT_DIR/freertos.elf, and the same as a
# flat file in the arm64 Image format, OUT_DIR/freertos.bin.
#
# FreeRTOS is not part of this repository. Cargo fetches it, pinned and with a checksum, inside the
# crate `freertos-next` (see fetch/). To use another copy of the kernel, set FREERTOS_KERNEL to its
# directory. Nor is lwIP: it is Debian's source package, pinned below, without Debian's patches. To use
# another copy, set LWIP to its directory. Other variables: CROSS_COMPILE (default aarch64-linux-gnu-),
# CARGO (default cargo).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/guests/rt}
mkdir -p "$out"
out=$(cd "$out" && pwd)
prefix=${CROSS_COMPILE:-aarch64-linux-gnu-}
cc=${prefix}gcc
cargo=${CARGO:-cargo}
elf=$out/freertos.elf

lwip_version=2.1.3+dfsg1
lwip_sha256=0a8276d09fc4e97bbba2f953d74af2388fc2195ea156be9d7589e297a68fde24

fail() {
    echo "guests/rt/build.sh: $1" >&2
    exit 1
}

# Prints the directory of the fetched kernel; the network is used only if it is not there yet.
find_kernel() {
    for mode in --offline ''; do
        # shellcheck disable=SC2086 # an empty mode is no argument
        if metadata=$("$cargo" metadata --locked $mode --format-version 1 --filter-platform aarch64-unknown-none \
            --manifest-path "$here/fetch/Cargo.toml" 2>"$out/fetch.log"); then
            manifest=$(printf '%s' "$metadata" |
                grep -o '"manifest_path":"[^"]*freertos-next[^"]*/Cargo.toml"' | head -n 1 | cut -d '"' -f 4)
            [ -n "$manifest" ] && echo "${manifest%/Cargo.toml}/FreeRTOS-Kernel" && return
        fi
    done
    return 1
}

# Prints the directory of the fetched lwIP, if it is the pinned one.
find_lwip() {
    "$here/../linux/debian-fetch" --source lwip 2>"$out/fetch.log" |
        awk -F '\t' -v version="$lwip_version" -v sum="$lwip_sha256" \
            '$2 == version && $3 == sum { print $4; found = 1 } END { exit !found }'
}

command -v "$cc" >/dev/null || fail "no $cc: install gcc-aarch64-linux-gnu, or set CROSS_COMPILE"
kernel=${FREERTOS_KERNEL:-}
if [ -z "$kernel" ]; then
    command -v "$cargo" >/dev/null || fail "no $cargo: install it, or set FREERTOS_KERNEL"
    kernel=$(find_kernel) || fail "cargo cannot fetch freertos-next, see $out/fetch.log"
fi
port=$kernel/portable/GCC/ARM_AARCH64_SRE
[ -f "$port/portASM.S" ] || fail "$kernel is not a FreeRTOS kernel with the port ARM_AARCH64_SRE"

lwip=${LWIP:-}
if [ -z "$lwip" ]; then
    lwip=$(find_lwip) || fail "cannot fetch lwIP $lwip_version with its checksum, see $out/fetch.log"
fi
[ -f "$lwip/src/core/tcp.c" ] || fail "$lwip is not lwIP"

# Marks of the exact clock are the same in both guests.
marks=$here/../linux/programs
own=$(ls "$here"/app/*.c "$here"/platform/*.c "$here"/libc/*.c "$here"/platform/*.S)
theirs="$kernel/tasks.c $kernel/list.c $port/port.c $port/portASM.S"
for unit in core/def core/inet_chksum core/init core/ip core/mem core/memp core/netif core/pbuf core/tcp core/tcp_in core/tcp_out \
    core/timeouts core/ipv4/etharp core/ipv4/icmp core/ipv4/ip4 core/ipv4/ip4_addr netif/ethernet apps/lwiperf/lwiperf; do
    theirs="$theirs $lwip/src/$unit.c"
done

# Nothing is built if the image is newer than all its sources.
stamp=$out/sources
if [ -f "$elf" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$kernel $lwip" ] &&
    [ -z "$(find "$here" "$here/../link" "$marks/mark.h" "$kernel/tasks.c" "$port" "$lwip/src/core" -type f -newer "$elf" | head -n 1)" ]; then
    echo "$elf: up to date"
    exit 0
fi

work=$out/obj
rm -rf "$work"
mkdir -p "$work"

# No C library and no floating-point registers; paths are cut so that the image is reproducible.
flags="-std=gnu11 -O2 -march=armv8-a -mgeneral-regs-only -mno-outline-atomics -mcmodel=small
    -ffreestanding -fno-pic -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables
    -fno-common -ffunction-sections -fdata-sections -fno-tree-loop-distribute-patterns
    -ffile-prefix-map=$here=guests/rt -ffile-prefix-map=$kernel=FreeRTOS-Kernel
    -ffile-prefix-map=$lwip=lwip
    -DGUEST -nostdinc -isystem $($cc -print-file-name=include) -isystem $here/libc
    -I$here/kernel -I$here/platform -I$here/app -I$here/lwip -I$here/../link -I$marks
    -isystem $kernel/include -isystem $port -isystem $lwip/src/include"
strict="-Wall -Wextra -Werror -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wconversion
    -Wno-sign-conversion"

compile() { # $1: source, the rest: more flags
    source=$1
    object=$work/$(basename "$source").o
    shift
    # shellcheck disable=SC2086 # lists of flags
    "$cc" $flags "$@" -c "$source" -o "$object" || fail "cannot compile $source"
}

for source in $own; do
    # shellcheck disable=SC2086
    compile "$source" $strict
done
for source in $theirs; do
    case $source in
        # The server connects to nobody: network.c says why.
        */lwiperf.c) compile "$source" -Dtcp_connect=network_refuse_connect ;;
        *) compile "$source" ;;
    esac
done
"$cc" -nostdlib -static -no-pie -Wl,--build-id=none -Wl,--gc-sections -Wl,--fatal-warnings \
    -Wl,-z,max-page-size=4096 -Wl,-z,noexecstack -Wl,-Map="$out/freertos.map" \
    -T "$here/platform/link.ld" "$work"/*.o -o "$elf.new" || fail "cannot link"
"${prefix}objcopy" -O binary "$elf.new" "$out/freertos.bin"
echo "$kernel $lwip" >"$stamp"
mv "$elf.new" "$elf"
rm -rf "$work"
echo "$elf: built, $(stat -c %s "$elf") bytes"
