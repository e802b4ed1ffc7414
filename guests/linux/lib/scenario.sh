# SPDX-License-Identifier: MIT OR Apache-2.0
# What every scenario uses: options, reasons for failure, the result line. To be sourced.
#
# Arguments of the form key=value are options of the scenario; the others are for the program it runs.

scenario=${0##*/}
reasons=
facts=

# option KEY DEFAULT ARGUMENTS… prints the value of KEY=… among the arguments, or the default.
option() {
    local key=$1 value=$2 word
    shift 2
    for word; do
        case $word in "$key="*) value=${word#*=} ;; esac
    done
    echo "$value"
}

# others DEFAULT ARGUMENTS… prints the arguments that are not options, or the default if there is none.
others() {
    local default=$1 words="" word
    shift
    for word; do
        case $word in *=*) ;; *) words="$words $word" ;; esac
    done
    echo "${words:-$default}"
}

# spell WORDS… prints them as one word, for the result line.
spell() { echo "$*" | tr ' ' _; }

# fail REASON notes why the result is not ok (one word, no spaces). The scenario continues.
fail() { reasons="$reasons${reasons:+,}$1"; }

# fact KEY=VALUE adds to the result line.
fact() { facts="$facts $1"; }

# needs PROGRAM… ends the scenario if one is not in this initramfs.
needs() {
    local program
    for program; do
        command -v "$program" > /dev/null || fail "no-$program-in-this-initrd"
    done
    [ -z "$reasons" ] || result
}

# repeat RUNS COMMAND… runs the command so often, each time between the marks of the exact clock and with
# its output in /tmp/output, and notes the facts seconds (of each run, in order) and median (also a
# variable). If a run fails, its output is shown, and no more are made.
#
# A scenario may define before_run and after_run, which are called with the number of the run. What
# they do is not measured; after_run may correct the time in /tmp/seconds.
repeat() {
    local runs=$1 run seconds=""
    shift
    for run in $(seq "$runs"); do
        before_run "$run"
        { measure "$run" /tmp/output "$@" > /tmp/seconds && after_run "$run"; } ||
            { fail "run-$run"; tail -n 20 /tmp/output; break; }
        seconds="$seconds${seconds:+,}$(cat /tmp/seconds)"
    done
    median=$(echo "$seconds" | tr , '\n' | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    fact "seconds=$seconds median=$median"
}
before_run() { :; }
after_run() { :; }

# Prints the result line, in one write so that nothing comes between, and ends the scenario:
# status 0 if ok, else 1.
result() {
    if [ -z "$reasons" ]; then
        printf 'linux-result scenario=%s ok=1%s\n' "$scenario" "$facts"
        exit 0
    fi
    printf 'linux-result scenario=%s ok=0 reasons=%s%s\n' "$scenario" "$reasons" "$facts"
    exit 1
}

# Sum over all CPUs of the /proc/interrupts lines that match the pattern $1.
interrupts() {
    awk -v pattern="$1" '$0 ~ pattern { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' \
        /proc/interrupts
}

# The same for CPU number $2 alone. The header line names the columns: an offline CPU has none.
interrupts_of_cpu() {
    awk -v pattern="$1" -v cpu="CPU$2" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == cpu) column = i + 1; next }
        column && $0 ~ pattern { sum += $column }
        END { print sum + 0 }' /proc/interrupts
}

# Numbers of the CPUs that are online, one a line.
online_cpus() {
    local range
    for range in $(tr , ' ' < /sys/devices/system/cpu/online); do
        seq "${range%-*}" "${range#*-}"
    done
}

# Fails if the kernel has complained of anything since it was booted.
kernel_is_well() {
    local trouble
    dmesg > /tmp/dmesg
    for trouble in 'BUG:' 'WARNING' 'rcu.*stall' 'soft lockup' 'hung_task\|blocked for more' 'Unhandled' \
        'Internal error' 'Call trace'; do
        if grep -m 3 "$trouble" /tmp/dmesg; then fail "dmesg-$(echo "$trouble" | tr -cd A-Za-z)"; fi
    done
}

# Milliseconds since boot, to 10 ms.
uptime_ms() { awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime; }
