#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Boots the Linux guest on QEMU's virt machine without a hypervisor: to try a scenario, and for test.sh. Figures start
# the bare machine themselves (bench/src/qemu.rs). The machine has a blank disk and QEMU's user network.
#
# usage: bare.sh [--rt] [--bench] [--exact] [--cpus N] [--memory SIZE] [SCENARIO [ARGUMENT...]]
#   --bench    the initramfs with all yardsticks
#   --exact    on the exact clock (testbed/), 250 instructions a virtual microsecond; without the network
#   SCENARIO   a file in scenarios/ (default: shell, interactive; Ctrl-A X kills QEMU)
#   ARGUMENT   as in the head of the scenario; net without arguments gets a file to fetch and an echo service
# Exit status 0 if every result line says ok=1, else 1.
# SPUMONE_LIMIT=SECONDS  after which QEMU is killed (default 300; not for shell)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/guests/linux
die() { echo "bare.sh: error: $*" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cpus=4 memory=512M suffix='' bench=
network=(-netdev "user,id=net,tftp=$dir/tftp,guestfwd=tcp:10.0.2.100:7-cmd:cat" -device virtio-net-device,netdev=net)
qemu=(qemu-system-aarch64)
while [[ ${1:-} == --* ]]; do
    case $1 in
        --rt) suffix=-rt; shift ;;
        --bench) bench=-bench; shift ;;
        --exact) qemu=("$root/testbed/run" --q 500 --ipus 250 --) network=(); shift ;;
        --cpus | --memory)
            [[ $# -ge 2 ]] || die "$1 needs a value"
            if [[ $1 == --cpus ]]; then cpus=$2; else memory=$2; fi
            shift 2 ;;
        *) die "unknown option $1; the head of bare.sh lists them" ;;
    esac
done
scenario=${1:-shell}
args=("${@:2}")
initrd=$build/initrd$suffix$bench.cpio
[[ -f $build/Image$suffix && -f $initrd ]] ||
    die "no $build/Image$suffix or no $initrd: run guests/linux/build.sh${suffix:+ --rt}${bench:+ --bench}"
command -v qemu-system-aarch64 >/dev/null || die "qemu-system-aarch64 is missing: run scripts/setup"

truncate -s 16M "$dir/disk"
mkdir "$dir/tftp"
head -c 300000 /dev/urandom > "$dir/tftp/blob"
if [[ $scenario == net && ${#args[@]} -eq 0 ]]; then
    args=(file=blob "sha256=$(sha256sum < "$dir/tftp/blob" | cut -d' ' -f1)" echo=10.0.2.100:7)
fi
joined=$(IFS=,; echo "${args[*]}")

# shellcheck disable=SC2054  # the commas are QEMU's
qemu+=(
    -M virt,gic-version=3 -cpu cortex-a76 -smp "$cpus" -m "$memory" -nographic -nic none
    -kernel "$build/Image$suffix" -initrd "$initrd"
    # The crypto self-tests are half of all instructions up to /init.
    -append "console=ttyAMA0 quiet cryptomgr.notests spumone.run=$scenario spumone.args=$joined"
    -global virtio-mmio.force-legacy=false
    -drive "if=none,id=disk,format=raw,file=$dir/disk" -device virtio-blk-device,drive=disk
    "${network[@]}"
)
if [[ $scenario == shell ]]; then
    "${qemu[@]}"
    exit
fi
timeout -s KILL "${SPUMONE_LIMIT:-300}" "${qemu[@]}" < /dev/null | tr -d '\r' | tee "$dir/console" || true
grep -q 'linux-result .* ok=1' "$dir/console" && ! grep -q 'linux-result .* ok=0' "$dir/console"
