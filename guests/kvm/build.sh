#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the KVM host from unmodified Debian arm64 packages: an initramfs with QEMU, for each kernel of guests/linux. In it
# are the images of the two guests that it starts, so they are built first.
#
# usage: build.sh [--update] [OUT_DIR]        OUT_DIR defaults to build/guests/kvm
#   --update  take newer packages if the mirror has any; otherwise those of the last build
#
# Writes to OUT_DIR:
#   kvm.cpio       the host's initramfs for the stock kernel (guests/linux: Image); newc cpio, not compressed
#   kvm-rt.cpio    the same for the PREEMPT_RT kernel (Image-rt)
#   kvm-pair.cpio  the host for links between two Linux guests, for the stock kernel
#   versions.txt   each package used, with version and SHA-256, and the files' SHA-256
#
# The same packages and guests give the same bytes. Nothing is rebuilt when nothing changed.
set -euo pipefail
umask 022
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin" # kmod's tools are in sbin

readonly PACKAGES=(
    busybox-static util-linux qemu-system-arm
    libaio1 libblkid1 libbpf1 libc6 libcapstone4 libdaxctl1 libelf1 libfdt1 libffi8 libfuse3-3 libgcc-s1
    libglib2.0-0 libgmp10 libgnutls30 libhogweed6 libibverbs1 libidn2-0 libjpeg62-turbo libkmod2 liblzma5 libmount1 libndctl6
    libnettle8 libnl-3-200 libnl-route-3-200 libnuma1 libp11-kit0 libpcre2-8-0 libpixman-1-0 libpmem1 libpng16-16
    librdmacm1 libsasl2-2 libseccomp2 libselinux1 libslirp0 libssl3 libtasn1-6 libudev1 libunistring2 liburing2 libuuid1
    libvdeplug2 libzstd1 zlib1g
)
# Programs to take from PACKAGES. Their shared libraries are added. The Debian busybox has no chrt.
readonly PROGRAMS=(usr/bin/qemu-system-aarch64 usr/bin/chrt)
# For the disk that the host gives to its Linux guest.
readonly MODULES=(virtio_mmio virtio_blk)
# For the network between two Linux guests, and for sockets between a guest and the host.
readonly PAIR_MODULES=(tun vhost_net bridge vhost_vsock)
readonly FLAVOURS=(cloud rt)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root
# shellcheck source=guests/linux/packages.sh
. "$here/../linux/packages.sh"

die() { echo "guests/kvm/build.sh: error: $*" >&2; exit 1; }

update=()
out=
for arg in "$@"; do
    case $arg in
        --update) update=(--update) ;;
        -*) die "unknown option $arg (usage: build.sh [--update] [OUT_DIR])" ;;
        *) [[ -z $out ]] || die "more than one OUT_DIR: $out and $arg"; out=$arg ;;
    esac
done
out=${out:-$root/build/guests/kvm}
for tool in cpio depmod modprobe readelf sha256sum flock; do
    command -v "$tool" >/dev/null || die "$tool is missing: run scripts/setup"
done

linux=$root/build/guests/linux
rt=$root/build/guests/rt
"$root/guests/linux/build.sh" --rt --bench "${update[@]}"
"$root/guests/rt/build.sh"

mkdir -p "$out"
out=$(cd "$out" && pwd)
exec 8> "$out/.lock"
flock 8
work=$out/.work
rm -rf "$work"
trap 'rm -rf "$work"' EXIT

# The package of the kernel that guests/linux has taken for flavour $1.
kernel_package() {
    awk -v flavour="-$1-arm64" '/^linux-image-/ && index($1, flavour) { print $1 }' "$linux/versions.txt"
}

# Begins an initramfs of a host in $1: the first process $2, busybox, PROGRAMS, modules $4… of the kernel of flavour $3, and the guests' kernel.
begin_host() {
    local rootfs=$1 init=$2 kernel release program
    kernel=$(package_dir "$(kernel_package "$3")")
    release=$(echo "$kernel"/boot/vmlinuz-*)
    release=${release##*/vmlinuz-}
    shift 3
    echo "guests/kvm: ${rootfs##*/}.cpio for Linux $release"
    mkdir -p "$rootfs"/{bin,dev,guests,proc,run,sys,usr}
    install -m 755 "$(package_dir busybox-static)/bin/busybox" "$rootfs/bin/busybox"
    ln -s busybox "$rootfs/bin/sh" # the other names are made by /init
    for program in "${PROGRAMS[@]}"; do copy_elf "$program" "$rootfs"; done
    install -m 755 "$here/$init" "$rootfs/init"
    install -m 644 "$linux/Image" "$rootfs/guests"
    copy_modules "$kernel" "$release" "$rootfs" "$@"
}

# Builds the initramfs of the host with the kernel of flavour $1, with file name suffix $2.
build_flavour() {
    local rootfs=$work/kvm$2
    begin_host "$rootfs" init "$1" "${MODULES[@]}"
    install -D -m 644 -t "$rootfs/lib/spumone" "$root/guests/linux/lib/realtime.sh"
    install -m 644 "$work/guest.cpio" "$rt/freertos.elf" "$rootfs/guests"
    pack "$rootfs" "$rootfs.cpio"
}

# Builds the initramfs of the host for links between guests. The server for sockets is that of the Linux guest.
build_pair() {
    local rootfs=$work/kvm-pair
    begin_host "$rootfs" pair cloud "${PAIR_MODULES[@]}"
    install -D -m 755 -t "$rootfs/etc" "$here/qemu-ifup"
    install -m 644 "$linux/initrd-bench.cpio" "$rootfs/guests/bench.cpio"
    install -m 644 "$linux/initrd-share.cpio" "$rootfs/guests/share.cpio"
    (cd "$rootfs" && cpio --quiet -i bin/sockets < guests/share.cpio)
    pack "$rootfs" "$rootfs.cpio"
}

# The file system of the Linux guest: the one with the yardsticks, and what is in guest/. Linux unpacks one archive after
# the other.
build_guest() {
    mkdir "$work/guest"
    install -D -m 755 -t "$work/guest/scenarios" "$here"/guest/*
    pack "$work/guest" "$work/more.cpio"
    cat "$linux/initrd-bench.cpio" "$work/more.cpio" > "$work/guest.cpio"
}

kernels=()
for flavour in "${FLAVOURS[@]}"; do
    kernel=$(kernel_package "$flavour")
    [[ -n $kernel ]] || die "$linux/versions.txt has no kernel $flavour: run guests/linux/build.sh --rt --bench"
    kernels+=("$kernel")
done
packages=$("$root/guests/linux/debian-fetch" "${update[@]}" "${PACKAGES[@]}" "${kernels[@]}")
packages=$(sort <<< "$packages")

outputs=(kvm.cpio kvm-rt.cpio kvm-pair.cpio)
guests=("$linux/Image" "$linux"/initrd-{bench,share}.cpio "$rt/freertos.elf")
sources=$(cd "$here" && find build.sh init pair qemu-ifup guest ../linux/packages.sh ../linux/lib/realtime.sh -type f | sort)
# shellcheck disable=SC2086  # the sources are words
stamp=$({ cut -f1-3 <<< "$packages"; sha256sum < <(cat "${guests[@]}"); cd "$here"; sha256sum $sources; } | sha256sum)
fresh=yes
for file in "${outputs[@]}" versions.txt; do [[ -s $out/$file ]] || fresh=no; done
if [[ $fresh == yes && $(cat "$out/.stamp" 2>/dev/null) == *"$stamp"* ]]; then
    echo "guests/kvm: up to date in $out"
    exit 0
fi

mkdir "$work"
build_guest
build_flavour cloud ""
build_flavour rt -rt
build_pair
{
    echo "# package version sha256"
    cut -f1-3 <<< "$packages" | tr '\t' ' '
    echo "# file sha256"
    (cd "$work" && sha256sum "${outputs[@]}" | awk '{print $2, $1}')
} > "$work/versions.txt"
rm -f "$out/.stamp"
for file in "${outputs[@]}" versions.txt; do mv "$work/$file" "$out/$file"; done
echo "$stamp" > "$out/.stamp"
echo "guests/kvm: done, in $out"
