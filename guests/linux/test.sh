#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the Linux guest on the bare machine: every scenario reports ok=1 where it should, and ok=0 where
# the machine lacks what the scenario needs. Takes some minutes under emulation.
#
# usage: test.sh [--rt]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
flavour=("$@")
failed=0

# check ok|bad PATTERN bare.sh-ARGUMENTS…: a line of the console must match the basic regular expression.
check() {
    local want=$1 pattern=$2 console got=bad
    shift 2
    console=$("$here/bare.sh" "${flavour[@]}" "$@" 2>&1) && got=ok
    if [[ $got == "$want" ]] && grep -q -e "$pattern" <<< "$console"; then
        echo "pass: $*"
    else
        echo "FAIL: $* (wanted $want with '$pattern')"
        echo "$console" | tail -n 30
        failed=1
    fi
}

"$here/build.sh" --bench "${flavour[@]}"
check ok  "cpus=4 "             selfcheck expects=4
check ok  "hotplugs=0"          --cpus 1 selfcheck expects=1
check bad "cpus-2-not-3"        --cpus 2 selfcheck expects=3
check ok  "seconds=[0-9.]*,[0-9.]* " --cpus 1 hackbench -g 1 -l 5 runs=2
check bad "reasons=run-1 "      hackbench --no-such-option
check ok  "scenario=hackbench"  --cpus 1 all -g 1 -l 5
check ok  "kib=1024"            disk
check bad "no-device"           disk device=/dev/vdb
check ok  "fetched=300000 echoed=262144" net
check bad "tftp-checksum"       net file=blob sha256=0
check ok  "lives=2"             reboot-loop count=2
check ok  "max_us="             cyclictest -S -m -p 80 -i 1000 -l 200
check ok  "kib="                diskwrite seconds=2
check bad "no-device"           diskwrite seconds=2 device=/dev/vdb
check ok  "seconds=1"           idle seconds=1
check ok  "load=hackbench seconds=5 rounds=" load load=hackbench seconds=5 -g 1 -l 20
check bad "load-failed"         load load=disk device=/dev/vdb seconds=2
check bad "unknown-load"        load load=no-such-load
check ok  "pieces=20 median_us=" duty threads=4 count=5 instructions=100000 apart=2500
check ok  "threads=0"           duty threads=0 count=2
check bad "run-1"               duty threads=none
check ok  "pieces=10 median_us=" settled run=duty settle=500 rest=200 hotplug=1 threads=2 count=5 instructions=1000000
check bad "unknown-scenario"    settled run=no-such-scenario
check bad "unknown-scenario"    no-such-scenario
check bad "no-tcc-in-this-initrd" build
check ok  "objects=16"          --bench build copies=1 parallel=3
check ok  "rounds=50 parallel=2 pinned=1" --bench forkexec rounds=50 parallel=2 pinned=1
check ok  "seconds=[0-9.]*,[0-9.]* " --bench loopback mib=16 runs=2
check ok  "loops=100001 "       --bench --cpus 2 dhrystone loops=100001
check bad "run-1"               --bench dhrystone loops=none
exit $failed
