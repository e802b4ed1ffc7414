// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs on a KVM host.

use super::super::Plan;
use super::super::beside::{DISK_MIB, Load, Periods};
use super::super::loads::{CORES, Loads};
use crate::kvm::{Kvm, Setup, Until};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};

/// Virtual time in microseconds after which a run without a result ends. No run with a result takes half as long.
const END_US: u64 = 120_000_000;

/// How KVM is set up, and why.
pub(super) const METHOD: &[&str] = &[
    "KVM: Debian's kernel is the host, at EL2 (VHE). One QEMU (Debian's 7.2) runs FreeRTOS with one vCPU, another one runs \
     Linux with four. Each vCPU of Linux is pinned to a core. FreeRTOS shares core 3 with the last of them, and is above it: its \
     thread is SCHED_FIFO, theirs are SCHED_OTHER. All other threads of both QEMUs are on cores 0 to 2. Both guests have huge \
     pages, made and locked before they start, and FreeRTOS has no PMU. FreeRTOS is set up as \
     libvirt's page *KVM Real Time Guest Config* (<https://libvirt.org/kbase/kvm-realtime.html>) has it, but the page wants a core \
     for each of its vCPUs, kept free of other work, and here the core is to be shared. `guests/kvm/README.md` has the source of each setting.",
    "KVM, host: interrupts of devices are kept off core 3 (`irqaffinity=0-2`; Linux, \
     `Documentation/admin-guide/kernel-parameters.txt`). Real-time threads have no limit (`sched_rt_runtime_us=-1`), and the fair \
     server is off: with it, FreeRTOS waited up to 1.4 ms beside an idle Linux. Waits of half a millisecond are left, when the host's \
     worker `vmstat` gives pages back with interrupts masked (`guests/kvm/README.md`). \
     The disk of Linux is a virtio disk on the host's own virtio disk, past the host's page cache (`cache=none,aio=native`). \
     All else is as Debian has it.",
    "KVM, Linux floats: the same, but the host's scheduler may run each vCPU of Linux on any core, which is how a VM without \
     `vcpupin` runs (libvirt, *Domain XML format*, `vcpupin`).",
    "KVM on PREEMPT_RT, core isolated: as libvirt's page has it. FreeRTOS has core 3 alone, which the host keeps free of all other \
     work (`isolcpus=managed_irq,domain,3 nohz_full=3 rcu_nocbs=3 irqaffinity=0-2`). Linux has three vCPUs, each on one of the other \
     cores. WFI does not trap (`kvm-arm.wfi_trap_policy=notrap`; Linux, `Documentation/admin-guide/kernel-parameters.txt`), as it does \
     not on a Xen that is set up this way. It is not core 0, since the host's kernel cannot isolate core 0, where it boots (`kernel/sched/isolation.c`: *must include one \
     present CPU, using boot CPU*).",
    "What KVM cannot do: a vCPU that is pinned to a core stays there. If it floats, the host's scheduler may move it to balance load, \
     but nothing bounds when. (Neither KVM nor Spumone knows which vCPU holds a lock; Spumone lets another core take each vCPU whose \
     core is taken for longer than 100 µs.)",
    "KVM, while Linux restarts: the host cleans the caches of all of that guest's memory, 2 MiB after 2 MiB, in a loop that no thread \
     preempts (`stage2_flush_vm` in `arch/arm64/kvm/mmu.c`; 512 MiB). The vCPU that does it may share the core of FreeRTOS. Cores with FEAT_S2FWB \
     need no such cleaning; a Cortex-A76 is without.",
];

/// FreeRTOS prints only what is evaluated: each character is an exit to QEMU.
const RT_MORE: &str = " histogram=off";

fn run(plan: &Plan, label: String, kvm: Kvm, disk_mib: u32, order: Order) -> Run {
    Run {
        label,
        machine: Machine::Kvm(kvm),
        disk_mib,
        clock: plan.clock(Some(END_US)),
        order,
    }
}

/// Linux measures a yardstick while FreeRTOS takes a share of one core, in per cent.
pub(super) fn throughput_run(
    plan: &Plan,
    loads: &Loads,
    setup: Setup,
    name: &str,
    load: u32,
) -> Run {
    let kvm = Kvm {
        setup,
        cores: CORES,
        linux: loads.linux(plan, setup.placement.linux_vcpus(CORES)),
        rt: format!(
            "period=1ms load={load}% burst={}ms duration=0{RT_MORE}",
            loads.burst_ms
        ),
        until: Until::Linux,
    };
    // The host complains if FreeRTOS ends first.
    let order = Order::LinuxFirst { rt_until: u64::MAX };
    run(plan, loads.label(name, load), kvm, 0, order)
}

/// FreeRTOS measures how late it wakes.
pub(super) fn wakeup_run(
    plan: &Plan,
    label: String,
    setup: Setup,
    load: Load,
    periods: Periods,
) -> Run {
    let vcpus = setup.placement.linux_vcpus(CORES);
    // Linux outlasts the run, which ends with FreeRTOS.
    let linux = match load {
        Load::Idle => Linux::new(vcpus, "idle", &["seconds=1000"]),
        Load::Hackbench => Linux::new(
            vcpus,
            "load",
            &["load=hackbench", "seconds=1000", "-g 1 -l 1000"],
        ),
        Load::Disk => Linux::new(vcpus, "diskwrite", &["seconds=1000"]),
    };
    let kvm = Kvm {
        setup,
        cores: CORES,
        linux,
        rt: format!("{}{RT_MORE}", periods.bootargs()),
        until: Until::Rt,
    };
    let disk_mib = if load == Load::Disk { DISK_MIB } else { 0 };
    run(plan, label, kvm, disk_mib, Order::RtFirst)
}

#[cfg(test)]
mod tests {
    use super::super::{Peers, throughputs};
    use super::*;
    use crate::experiments::Experiment;
    use crate::experiments::loads::tests::plan;
    use crate::role::{Flavour, Role};

    fn run_of(label: &str) -> Run {
        let runs = Peers.runs(&plan()).unwrap();
        runs.into_iter().find(|it| it.label == label).unwrap()
    }

    fn text(run: &Run) -> String {
        crate::machine::arguments(run, |role| format!("{{{role}}}").into()).join(" ")
    }

    #[test]
    fn freertos_bursts_for_ever_while_linux_measures() {
        let run = run_of("hackbench-kvm-rt-load-50");
        let text = text(&run);
        assert!(
            text.starts_with("-M virt,virtualization=on,gic-version=3 -cpu cortex-a76 -smp 4 ")
        );
        assert!(text.contains("-kernel {Image-rt} -initrd {kvm-rt.cpio} -append "));
        let burst = throughputs(&plan()).unwrap()[0].burst_ms;
        assert!(text.ends_with(&format!(
            "spumone.rt=period=1ms,load=50%,burst={burst}ms,duration=0,histogram=off spumone.until=linux"
        )));
        // The host shows Linux's results only after the guest has passed its last mark.
        assert_eq!(run.end_mark(), None);
    }

    #[test]
    fn beside_an_isolated_core_linux_has_three_vcpus() {
        let runs = [
            "hackbench-kvm-rt-isolated-load-90",
            "wakeup-kvm-rt-isolated-disk",
        ]
        .map(run_of);
        for run in runs {
            assert_eq!(run.machine.cores(), 4);
            assert_eq!(run.machine.linux().unwrap().cpus, 3);
            assert!(text(&run).contains(" kvm-arm.wfi_trap_policy=notrap spumone.core=3 "));
        }
    }

    #[test]
    fn linux_outlasts_the_wake_ups_that_are_measured() {
        let run = run_of("wakeup-kvm-disk");
        assert_eq!((run.disk_mib, run.order), (DISK_MIB, Order::RtFirst));
        let text = text(&run);
        assert!(text.contains("-kernel {Image} -initrd {kvm.cpio} "));
        assert!(text.contains("spumone.run=diskwrite spumone.args=seconds=1000 "));
        assert!(text.contains("histogram=off spumone.until=rt "));
        assert!(text.ends_with("file={disk.img} -device virtio-blk-device,drive=disk"));
    }

    #[test]
    fn a_host_has_files_of_its_own_kernel_and_names_of_its_guests() {
        let run = run_of("wakeup-kvm-rt-idle");
        assert_eq!(
            run.machine.files(),
            [
                Role::Kernel(Flavour::Rt),
                Role::KernelNames(Flavour::Cloud),
                Role::KvmHost(Flavour::Rt)
            ]
        );
    }
}
