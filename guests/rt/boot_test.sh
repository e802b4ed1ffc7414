#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Boots the guest on plain QEMU, without a hypervisor: guests/rt/boot_test.sh [OUT_DIR]
#
# QEMU counts instructions (-icount), so the guest's time does not depend on the host's: the checks
# are exact. 2^shift ns per instruction.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/guests/rt}
qemu=${QEMU:-qemu-system-aarch64}
log=$out/boot_test.log
tests=0
failures=0

"$here/build.sh" "$out" >/dev/null

# start SECONDS MACHINE_OPTIONS IMAGE SHIFT BOOTARGS: becomes QEMU with the guest, which is killed after so many seconds of the host.
start() {
    exec timeout -s KILL "$1" "$qemu" -M "virt,gic-version=3$2" -cpu cortex-a76 -smp 1 -m 16 -nographic \
        -kernel "$out/$3" -icount "shift=$4,sleep=off" -append "$5" </dev/null 2>&1
}

# boot MACHINE_OPTIONS IMAGE SHIFT BOOTARGS: runs the guest until it switches off, into $log.
boot() {
    booted="$*"
    start 120 "$@" | tr -d '\r' >"$log" || true
}

# expect PATTERN: a line of the last boot's output must match the extended regular expression.
expect() {
    tests=$((tests + 1))
    if ! grep -Eq -- "$1" "$log"; then
        failures=$((failures + 1))
        echo "boot \"$booted\": no line matches: $1" >&2
        cat "$log" >&2
    fi
}

# expect_sum JOBS: the rows of the last boot's rt-histogram contain this many jobs, and the first row begins at
# rt-result's minimum.
expect_sum() {
    tests=$((tests + 1))
    if ! awk -v jobs="$1" '
        /^rt-histogram / {
            for (i = 2; i <= NF; i++) {
                if (split($i, row, ":") != 2) continue
                if (!rows++) first = row[1]
                sum += row[2]
            }
        }
        /^rt-result / { sub(/.*min_ns=/, ""); min = $1 }
        END { exit !(sum == jobs && first == min) }' "$log"; then
        failures=$((failures + 1))
        echo "boot \"$booted\": rt-histogram does not contain $1 jobs, or does not begin at the minimum" >&2
        cat "$log" >&2
    fi
}

# A period of 1 ms shares its interrupts with the 1 kHz tick: as many interrupts as periods.
for machine in '' ',virtualization=on'; do
    for load in 0 30 60 90; do
        boot "$machine" freertos.elf 5 "duration=2s load=$load%"
        expect '^2000 periods, 0 lost, 0 late, 2000 timer interrupts$'
        expect "^rt-result periods=2000 lost=0 late=0 min_ns=[0-9]+ avg_ns=[0-9]+ p99_9_ns=[0-9]+ max_ns=[0-9]+ load=$load ticks_hz=62500000\$"
        expect '^histogram'
        expect '^rt-histogram width_ns=16( [0-9]+:[0-9]+)+$'
        expect_sum 2000
    done
    if [ -z "$machine" ]; then
        expect '^entered at EL1, PSCI by hvc'
    else
        expect '^entered at EL2, PSCI by smc'
    fi
done

# The flat image gets the address of its device tree in x0.
boot '' freertos.bin 5 'samples=10 histogram=off'
expect 'device tree at 0x'
expect '^rt-result periods=10 '

# The warm-up has its interrupts, but is not in the figures.
boot '' freertos.elf 5 'samples=1000 warmup=500'
expect '1000 periods after 500 that do not count$'
expect '^1000 periods, 0 lost, 0 late, 1500 timer interrupts$'
expect_sum 1000

# With end=reset the guest restarts for ever, so it is ended when it has reported twice.
booted='end=reset'
start 60 '' freertos.elf 5 'samples=50 histogram=off end=reset' >"$log" &
while kill -0 $! 2>/dev/null && [ "$(grep -c '^rt-result' "$log")" -lt 2 ]; do
    sleep 0.1
done
kill $! 2>/dev/null || true
wait
tests=$((tests + 1))
if [ "$(grep -c '^rt-result periods=50 lost=0 late=0 ' "$log")" -lt 2 ]; then
    failures=$((failures + 1))
    echo "boot \"$booted\": the guest has not restarted" >&2
fi

# 3 ms hold 10 releases and 3 ticks, of which one pair coincides: 12 interrupts.
boot '' freertos.elf 3 'period=300us duration=3s'
expect '^10000 periods, 0 lost, 0 late, 12000 timer interrupts$'

# Shorter than the tick; 125 us is not a whole number of counter ticks.
boot '' freertos.elf 2 'period=125us samples=8000'
expect '^8000 periods, 0 lost, 0 late, 8000 timer interrupts$'
boot '' freertos.elf 2 'period=50us samples=20000 load=95% burst=10ms'
expect '^20000 periods, 0 lost, 0 late, 20000 timer interrupts$'

# So slow that a job cannot start within its period: all jobs run late, and none is lost.
boot '' freertos.elf 7 'period=50us samples=500'
expect '^rt-result periods=500 lost=0 late=[1-9]'

# A wrong parameter is reported, and the machine switches off.
for bad in load=96% verbose period=49us 'samples=5 duration=1s'; do
    boot '' freertos.elf 5 "$bad"
    expect "^rt-error: bootargs: \"${bad%% *}\" is not allowed: "
done

echo "guests/rt boot tests: $tests checks, $failures failed"
[ "$failures" -eq 0 ]
