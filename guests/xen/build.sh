#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds what the measured Xen system needs beside the project's guests (README.md), from unmodified Debian arm64 packages.
#
# usage: build.sh [--update] [OUT_DIR]        OUT_DIR defaults to build/guests/xen
#   --update  take newer packages if the mirror has any; otherwise those of the last build
#
# Writes to OUT_DIR:
#   xen           the hypervisor (arm64 boot Image)
#   xen.config    how Debian has configured it
#   setup.bin     the control domain (setup.c, arm64 boot Image)
#   seed.cpio     goes before Linux's initial file system: seed.c, filled up to 1 MiB
#   versions.txt  each package used, with version and SHA-256, and the files' SHA-256
#
# The same packages, sources and C compiler give the same bytes. Nothing is rebuilt when nothing changed.
set -euo pipefail
umask 022
export LC_ALL=C

readonly SERIES=4.17
# The second one has the headers with the interface of the hypercalls.
readonly PACKAGES=("xen-hypervisor-$SERIES-arm64" libxen-dev)
readonly OUTPUTS=(xen xen.config setup.bin seed.cpio)
readonly SEED_SIZE=$((1 << 20)) # so that the address of what follows is known (bench/src/xen.rs)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root

die() { echo "guests/xen/build.sh: error: $*" >&2; exit 1; }

update=()
out=
for arg in "$@"; do
    case $arg in
        --update) update=(--update) ;;
        -*) die "unknown option $arg (usage: build.sh [--update] [OUT_DIR])" ;;
        *) [[ -z $out ]] || die "more than one OUT_DIR: $out and $arg"; out=$arg ;;
    esac
done
out=${out:-$root/build/guests/xen}

prefix=${CROSS_COMPILE:-aarch64-linux-gnu-}
cc=${prefix}gcc
for tool in cpio sha256sum flock truncate "$cc" "${prefix}objcopy"; do
    command -v "$tool" >/dev/null || die "$tool is missing: run scripts/setup"
done

mkdir -p "$out"
out=$(cd "$out" && pwd)
exec 8> "$out/.lock"
flock 8
work=$out/.work
rm -rf "$work"
trap 'rm -rf "$work"' EXIT

packages=$("$root/guests/linux/debian-fetch" "${update[@]}" "${PACKAGES[@]}")

# The unpacked directory of package $1.
package_dir() { awk -F '\t' -v name="$1" '$1 == name { print $4 }' <<< "$packages"; }

stamp=$({
    cut -f1-3 <<< "$packages"
    "$cc" --version
    cd "$here"
    sha256sum build.sh setup.c setup.ld start.S seed.c ../rt/libc/string.c
} | sha256sum)
fresh=yes
for file in "${OUTPUTS[@]}" versions.txt; do [[ -s $out/$file ]] || fresh=no; done
if [[ $fresh == yes && $(cat "$out/.stamp" 2>/dev/null) == "$stamp" ]]; then
    echo "guests/xen: up to date in $out"
    exit 0
fi
mkdir "$work"

boot=$(package_dir "xen-hypervisor-$SERIES-arm64")/boot/xen-$SERIES-arm64
[[ -f $boot ]] || die "the package xen-hypervisor-$SERIES-arm64 has no boot/xen-$SERIES-arm64: adapt this script to it"
cp "$boot" "$work/xen"
cp "$boot.config" "$work/xen.config"
[[ $(dd if="$work/xen" bs=1 skip=56 count=4 status=none) == ARMd ]] ||
    die "$boot is not an arm64 boot Image (no magic ARMd at offset 56)"

strict=(-std=gnu11 -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wl,--build-id=none)
# No C library, no floating-point registers, no address in a variable: it runs where it is loaded, with the MMU off.
"$cc" "${strict[@]}" -Os -march=armv8-a -mgeneral-regs-only -mstrict-align -ffreestanding -fpie -fno-jump-tables \
    -fno-stack-protector -fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns \
    -I "$root/guests/rt/libc" -isystem "$(package_dir libxen-dev)/usr/include" -D__XEN_TOOLS__ \
    -nostdlib -static -Wl,--fatal-warnings -Wl,-z,noexecstack -T "$here/setup.ld" \
    "$here/start.S" "$here/setup.c" "$root/guests/rt/libc/string.c" -o "$work/setup.elf" || die "cannot compile setup.c"
"${prefix}objcopy" -O binary "$work/setup.elf" "$work/setup.bin"

mkdir "$work/root"
"$cc" "${strict[@]}" -O2 -static -s "$here/seed.c" -o "$work/root/seed" || die "cannot compile seed.c"
touch -d @0 "$work/root/seed"
(cd "$work/root" && echo seed | cpio --quiet -o -H newc --reproducible --owner=0:0) > "$work/seed.cpio"
[[ $(stat -c %s "$work/seed.cpio") -le $SEED_SIZE ]] || die "seed.cpio is larger than $SEED_SIZE bytes: raise SEED_SIZE here and in bench/src/xen.rs"
truncate -s "$SEED_SIZE" "$work/seed.cpio" # Linux skips zeros between archives

{
    echo "# package version sha256"
    cut -f1-3 <<< "$packages" | tr '\t' ' '
    echo "# C compiler of setup.c and seed.c"
    "$cc" --version | head -n 1
    echo "# file sha256"
    (cd "$work" && sha256sum "${OUTPUTS[@]}" | awk '{print $2, $1}')
} > "$work/versions.txt"
rm -f "$out/.stamp"
for file in "${OUTPUTS[@]}" versions.txt; do mv "$work/$file" "$out/$file"; done
echo "$stamp" > "$out/.stamp"
echo "guests/xen: done, in $out"
