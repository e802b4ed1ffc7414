# SPDX-License-Identifier: MIT OR Apache-2.0
# What the builds of initramfs images from Debian packages share. To be sourced by a bash script that defines
# `die MESSAGE`, `packages` (the list that `debian-fetch` printed) and `work` (a directory for files between steps).
# shellcheck shell=bash
# shellcheck disable=SC2154  # packages and work come from the script

# The unpacked directory of package $1 (a name or glob), from the list `debian-fetch` printed.
package_dir() {
    local name dir
    while IFS=$'\t' read -r name _ _ dir; do
        # shellcheck disable=SC2053  # the right side is meant as a pattern
        if [[ $name == $1 ]]; then echo "$dir"; return; fi
    done <<< "$packages"
    die "package $1 was not fetched"
}

# The unpacked file $1 (path in a package), from whichever package has it.
find_in_packages() {
    local dir
    while IFS=$'\t' read -r _ _ _ dir; do
        if [[ -e $dir/$1 ]]; then echo "$dir/$1"; return; fi
    done <<< "$packages"
    return 1
}

# Copies program or library $1 (path in a package) to the same place under $2, with its libraries.
copy_elf() {
    local path=$1 rootfs=$2 from need library
    [[ -e $rootfs/$path ]] && return
    from=$(find_in_packages "$path") || die "no package has $path: add its package to PACKAGES"
    install -D -m 755 "$from" "$rootfs/$path"
    for need in $(readelf -d "$from" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        library=$(library_path "$need")
        copy_elf "$library" "$rootfs"
    done
}

# Where Debian keeps the shared library $1. The loader's name is fixed by the ABI.
library_path() {
    local dir
    [[ $1 == ld-linux-aarch64.so.1 ]] && { echo "lib/$1"; return; }
    for dir in lib/aarch64-linux-gnu usr/lib/aarch64-linux-gnu; do
        find_in_packages "$dir/$1" >/dev/null && { echo "$dir/$1"; return; }
    done
    die "no package has the library $1: add its package to PACKAGES"
}

# Copies modules $4… (names, as far as the kernel has them as modules) and what they need from unpacked kernel $1,
# release $2, to rootfs $3, decompressed so that the guest need not do it, and writes the tables busybox's modprobe reads.
copy_modules() {
    local kernel=$1 release=$2 rootfs=$3 name action file to
    local dest=$rootfs/lib/modules/$release
    shift 3
    [[ -f $kernel/lib/modules/$release/modules.dep ]] || depmod -b "$kernel" "$release"
    mkdir -p "$dest"
    for name; do
        # Prints "insmod FILE [OPTIONS]" for each needed module in order, or "builtin NAME".
        modprobe -C /dev/null -d "$kernel" -S "$release" --show-depends "$name" > "$work/depends" ||
            die "kernel $release has no module $name"
        while read -r action file _; do
            [[ $action == insmod ]] || continue
            to=$dest/${file#*/lib/modules/"$release"/}
            mkdir -p "$(dirname "$to")"
            case $file in
                *.ko.xz) xz -dc "$file" > "${to%.xz}" ;;
                *.ko) cp "$file" "$to" ;;
                *) die "$file: unknown module compression" ;;
            esac
        done < "$work/depends"
    done
    cp "$kernel/lib/modules/$release/modules."{order,builtin,builtin.modinfo} "$dest"
    depmod -b "$rootfs" "$release"
    (cd "$dest" && sort -o modules.alias modules.alias && sort -o modules.dep modules.dep &&
        find . -maxdepth 1 -type f ! -name modules.alias ! -name modules.dep -delete)
}

# Packs directory $1 as the cpio archive $2: sorted, owned by root, without times or inode numbers.
# Device nodes are not needed: the kernel makes /dev/console, /init mounts devtmpfs.
pack() {
    find "$1" -exec touch -h -d @0 {} +
    (cd "$1" && find . -mindepth 1 -print0 | sort -z |
        cpio --quiet -0 -o -H newc --reproducible --owner=0:0) > "$2"
}
