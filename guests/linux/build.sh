#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the Linux guest from unmodified Debian arm64 packages: a kernel and a small initramfs.
#
# usage: build.sh [--rt] [--bench] [--update] [OUT_DIR]        OUT_DIR defaults to build/guests/linux
#   --rt      also the PREEMPT_RT kernel, with an initramfs with that kernel's modules
#   --bench   also an initramfs for each kernel with all that the yardsticks need: compiler, iperf3, …
#             (an OUT_DIR that has either already keeps them up to date)
#   --update  take newer packages if the mirror has any; otherwise those of the last build
#
# Writes to OUT_DIR:
#   Image, initrd.cpio          the kernel (arm64 boot Image) and its initramfs (newc cpio, not compressed)
#   Image.map                   the kernel's function names, for profiles on the exact clock
#   Image-rt, initrd-rt.cpio    the same for --rt, and Image-rt.map
#   initrd-bench.cpio           what initrd.cpio has and more, for --bench; initrd-rt-bench.cpio for both
#   initrd-share.cpio           what initrd.cpio has, and the drivers with which one guest shares its devices with another
#   root.ext4                   the same as a root file system on a disk, with room for data
#   versions.txt                each package used, with version and SHA-256, and the files' SHA-256
#
# The same packages, sources and C compiler give the same bytes. Nothing is rebuilt when nothing changed.
set -euo pipefail
umask 022
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin" # kmod's tools are in sbin

readonly KERNEL_SERIES=6.12
readonly PACKAGES=(busybox-static rt-tests libc6 libnuma1)
# Programs to take from PACKAGES. Their shared libraries are added.
readonly PROGRAMS=(usr/bin/hackbench usr/bin/cyclictest)
# The same for --bench; what tcc compiles with; and upstream sources: of zlib, which the guest builds, and
# of U-Boot, which carries Dhrystone 2.1.
readonly BENCH_PACKAGES=(iperf libstdc++6 libgcc-s1 iperf3 libiperf0 libssl3 libsctp1 make tcc libc6-dev linux-libc-dev)
readonly BENCH_PROGRAMS=(usr/bin/iperf usr/bin/iperf3 usr/bin/make usr/bin/tcc)
readonly BENCH_FILES=(
    usr/lib/aarch64-linux-gnu/{tcc,crt1.o,crti.o,crtn.o,libc.so,libc_nonshared.a}
    usr/include/{"*.h",asm-generic,aarch64-linux-gnu} usr/include/linux/{errno,falloc,limits}.h
)
readonly BENCH_SOURCES=(zlib u-boot)
readonly CFLAGS=(-std=gnu11 -O2 -static -s -Wl,--build-id=none)
# Modules to take if the kernel has them as modules, by name. Modules that they need are added.
readonly MODULES=(virtio_mmio virtio_blk virtio_net ext4)
# The same for the initramfs for sharing: for the guest that has the devices, for the other one, and for both; and the watchdog's.
readonly SHARE_MODULES=(bridge nvmet-tcp nvme-tcp vmw_vsock_virtio_transport arm_smc_wdt)
# MiB of the root file system. What has no data takes no room on the host.
readonly ROOT_MIB=256

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root
# shellcheck source=guests/linux/packages.sh
. "$here/packages.sh"

die() { echo "guests/linux/build.sh: error: $*" >&2; exit 1; }

rt=no bench=no
update=()
out=
for arg in "$@"; do
    case $arg in
        --rt) rt=yes ;;
        --bench) bench=yes ;;
        --update) update=(--update) ;;
        -*) die "unknown option $arg (usage: build.sh [--rt] [--bench] [--update] [OUT_DIR])" ;;
        *) [[ -z $out ]] || die "more than one OUT_DIR: $out and $arg"; out=$arg ;;
    esac
done
out=${out:-$root/build/guests/linux}

cc=${CROSS_COMPILE:-aarch64-linux-gnu-}gcc
for tool in cpio python3 depmod modprobe mke2fs debugfs readelf xz sha256sum flock "$cc"; do
    command -v "$tool" >/dev/null || die "$tool is missing: run scripts/setup"
done

mkdir -p "$out"
out=$(cd "$out" && pwd)
flavours=(cloud)
if [[ $rt == yes || -e $out/Image-rt ]]; then flavours+=(rt); fi
if [[ -e $out/initrd-bench.cpio ]]; then bench=yes; fi
exec 8> "$out/.lock"
flock 8
work=$out/.work
rm -rf "$work"
trap 'rm -rf "$work"' EXIT

# Prints the list of `debian-fetch` for what this build takes, in a fixed order.
fetch() {
    local patterns=("${PACKAGES[@]}") flavour
    for flavour in "${flavours[@]}"; do patterns+=("linux-image-$KERNEL_SERIES.*-$flavour-arm64"); done
    if [[ $bench == yes ]]; then
        patterns+=("${BENCH_PACKAGES[@]}")
        "$here/debian-fetch" --source "${update[@]}" "${BENCH_SOURCES[@]}"
    fi
    "$here/debian-fetch" "${update[@]}" "${patterns[@]}"
}

# Copies BENCH_FILES (files, directories, and patterns of them, from whichever packages have them) to $1.
copy_bench_files() {
    local dir path found
    for path in "${BENCH_FILES[@]}"; do
        found=no
        while IFS=$'\t' read -r _ _ _ dir; do
            # shellcheck disable=SC2086  # patterns are meant
            if compgen -G "$dir/$path" > /dev/null; then
                found=yes
                (cd "$dir" && cp -r --parents --no-preserve=mode $path "$1")
            fi
        done <<< "$packages"
        [[ $found == yes ]] || die "no package has $path: add its package to BENCH_PACKAGES"
    done
}

# Compiles program $1 of programs/, from it and the other files given, to $2/bin. It is static, so that
# it does not matter which C library the guest has.
compile() {
    local program=$1 rootfs=$2
    shift 2
    (cd "$here/programs" && "$cc" "${CFLAGS[@]}" -I "$here/../link" -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes \
        -Wstrict-prototypes -Wconversion "$program.c" "$@" -o "$rootfs/bin/$program") ||
        die "cannot compile programs/$program.c"
}

# Adds to rootfs $1 what the yardsticks need.
add_bench() {
    local rootfs=$1 program zlib dhry unit
    for program in "${BENCH_PROGRAMS[@]}"; do copy_elf "$program" "$rootfs"; done
    copy_bench_files "$rootfs"
    zlib=$(package_dir zlib)
    install -D -m 644 -t "$rootfs/usr/src/zlib" "$zlib"/*.[ch] "$zlib/test/minigzip.c"

    # Dhrystone's rules forbid to merge procedures, hence -fno-inline. It is old C, full of warnings.
    dhry=$(package_dir u-boot)/lib/dhry
    for unit in dhry_1 dhry_2; do
        "$cc" "${CFLAGS[@]}" -w -fno-inline -I "$here/programs/dhrystone-include" -c "$dhry/$unit.c" \
            -o "$work/$unit.o" || die "cannot compile $dhry/$unit.c"
    done
    compile dhrystone "$rootfs" workers.c "$work"/dhry_[12].o
    compile forkexec "$rootfs" workers.c
    compile rtload "$rootfs"
}

# Builds the initramfs for sharing and the root file system, from unpacked kernel $1, release $2, rootfs $3.
add_share() {
    local share=$work/share
    cp -a "$3" "$share"
    rm -r "$share/lib/modules"
    copy_modules "$1" "$2" "$share" "${MODULES[@]}" "${SHARE_MODULES[@]}"
    compile frames "$share"
    compile lastpet "$share"
    compile sockets "$share"
    pack "$share" "$work/initrd-share.cpio"
    # mke2fs writes the files itself, so this needs no root; debugfs then has root own them, with a fixed time.
    (cd "$share" && find . -mindepth 1 -printf '%P\n' | sort) |
        sed 's|.*|sif /& uid 0\nsif /& gid 0\nsif /& atime @0\nsif /& ctime @0|' > "$work/owners"
    export E2FSPROGS_FAKE_TIME=1
    mke2fs -q -F -t ext4 -b 4096 -m 0 -L root -U 5b0e0000-0000-4000-8000-000000000002 \
        -E hash_seed=5b0e0000-0000-4000-8000-000000000003,lazy_itable_init=0,root_owner=0:0 \
        -d "$share" "$work/root.ext4" "${ROOT_MIB}M" > /dev/null
    debugfs -w -f "$work/owners" "$work/root.ext4" > /dev/null 2>&1
    unset E2FSPROGS_FAKE_TIME
}

# Builds OUT_DIR's Image and initrds for flavour $1 (cloud, rt), with file name suffix $2.
build_flavour() {
    local kernel release vmlinuz rootfs program busybox
    kernel=$(package_dir "linux-image-*-$1-arm64")
    busybox=$(package_dir busybox-static)/bin/busybox
    vmlinuz=$(echo "$kernel"/boot/vmlinuz-*)
    release=${vmlinuz##*/vmlinuz-}
    rootfs=$work/rootfs$2
    echo "guests/linux: Image$2 and initrd$2.cpio with Linux $release"

    case $(head -c 2 "$vmlinuz" | od -An -tx1) in
        " 1f 8b") gzip -dc "$vmlinuz" > "$work/Image$2" ;;
        *) cp "$vmlinuz" "$work/Image$2" ;;
    esac
    [[ $(dd if="$work/Image$2" bs=1 skip=56 count=4 status=none) == ARMd ]] ||
        die "$vmlinuz is not an arm64 boot Image (no magic ARMd at offset 56)"
    "$root/testbed/image-symbols" "$work/Image$2" > "$work/Image$2.map"

    mkdir -p "$rootfs"/{bin,dev,etc,lib,mnt,proc,root,run,sys,tmp,usr}
    ln -s bin "$rootfs/sbin"
    install -m 755 "$busybox" "$rootfs/bin/busybox"
    ln -s busybox "$rootfs/bin/sh" # the other names are made by /init
    for program in "${PROGRAMS[@]}"; do copy_elf "$program" "$rootfs"; done
    for program in mark measure linkecho duty; do compile "$program" "$rootfs"; done
    install -m 755 "$here/init" "$rootfs/init"
    install -D -m 755 -t "$rootfs/lib/spumone" "$here"/lib/*
    install -D -m 755 -t "$rootfs/scenarios" "$here"/scenarios/*
    copy_modules "$kernel" "$release" "$rootfs" "${MODULES[@]}"
    pack "$rootfs" "$work/initrd$2.cpio"
    [[ $1 != cloud ]] || add_share "$kernel" "$release" "$rootfs"
    if [[ $bench == yes ]]; then
        add_bench "$rootfs"
        pack "$rootfs" "$work/initrd$2-bench.cpio"
    fi
}

packages=$(fetch)
packages=$(sort <<< "$packages")

outputs=(initrd-share.cpio root.ext4)
for flavour in "${flavours[@]}"; do
    suffix=${flavour#cloud} suffix=${suffix:+-$suffix}
    outputs+=("Image$suffix" "Image$suffix.map" "initrd$suffix.cpio")
    [[ $bench == no ]] || outputs+=("initrd$suffix-bench.cpio")
done
sources=$(cd "$here" && find build.sh packages.sh init lib programs scenarios ../link/spumone_link.h ../../testbed/image-symbols -type f | sort)
# shellcheck disable=SC2086  # the sources are words
stamp=$({ cut -f1-3 <<< "$packages"; "$cc" --version; cd "$here"; sha256sum $sources; } | sha256sum)
fresh=yes
for file in "${outputs[@]}" versions.txt; do [[ -s $out/$file ]] || fresh=no; done
if [[ $fresh == yes && $(cat "$out/.stamp" 2>/dev/null) == *"$stamp"* ]]; then
    echo "guests/linux: up to date in $out"
    exit 0
fi

mkdir "$work"
build_flavour cloud ""
if [[ ${#flavours[@]} -gt 1 ]]; then build_flavour rt -rt; fi
{
    echo "# package version sha256"
    cut -f1-3 <<< "$packages" | tr '\t' ' '
    echo "# C compiler of programs/"
    "$cc" --version | head -n 1
    echo "# file sha256"
    (cd "$work" && sha256sum "${outputs[@]}" | awk '{print $2, $1}')
} > "$work/versions.txt"
rm -f "$out/.stamp"
for file in "${outputs[@]}" versions.txt; do mv "$work/$file" "$out/$file"; done
echo "$stamp" > "$out/.stamp"
echo "guests/linux: done, in $out"
