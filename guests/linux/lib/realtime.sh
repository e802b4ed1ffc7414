# SPDX-License-Identifier: MIT OR Apache-2.0
# Real-time threads without a limit, in the Linux guest's scenarios and on the KVM host (guests/kvm). To be sourced.

# Lets real-time threads have a CPU for as long as they want. Otherwise Linux takes it away from them for 5 % of each second; and
# its fair server (since 6.12) runs other threads before them, also where no other thread starves.
unlimited_realtime() {
    local server
    echo -1 > /proc/sys/kernel/sched_rt_runtime_us
    mount -t debugfs debugfs /sys/kernel/debug
    for server in /sys/kernel/debug/sched/fair_server/cpu*/runtime; do echo 0 > "$server"; done
}
