// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's command line for a machine, for `spm run`, the figures and the boot tests.

use std::ffi::OsString;
use std::path::Path;

/// The QEMU that is started unless the user names another one.
pub const PROGRAM: &str = "qemu-system-aarch64";
/// QEMU's `virt` machine with a GICv3 and without EL2: the bare machine.
pub const BARE: &str = "virt,gic-version=3";
/// The same with EL2: the machine for the hypervisor.
pub const WITH_EL2: &str = "virt,virtualization=on,gic-version=3";
/// The core type of figures and boot tests.
pub const CPU: &str = "cortex-a76";

/// A machine without devices beyond those of its board.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// QEMU's name of the machine, with its properties.
    pub machine: &'a str,
    /// QEMU's name of the core type.
    pub cpu: &'a str,
    /// Number of cores.
    pub cores: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// What the first UART is connected to.
#[derive(Clone, Copy, Debug)]
pub enum Console<'a> {
    /// QEMU's standard input and output.
    Stdio,
    /// The terminal, shared with QEMU's monitor (Ctrl-A C).
    Terminal,
    /// QEMU's standard output; the content of this file is typed, as fast as the UART takes it.
    Typed(&'a Path),
}

/// QEMU's arguments, collected step by step.
#[derive(Clone, Debug)]
pub struct Arguments(Vec<OsString>);

impl Arguments {
    /// Those of the machine: no window, and none of the devices that QEMU would add.
    pub fn new(machine: &Machine<'_>) -> Self {
        Self(Vec::new())
            .with(["-M", machine.machine, "-cpu", machine.cpu])
            .with(["-smp", &machine.cores.to_string()])
            .with(["-m", &format!("{}M", machine.memory_mib)])
            .with(["-display", "none", "-nodefaults"])
    }

    /// Adds arguments as they are.
    #[must_use]
    pub fn with<S: Into<OsString>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.0.extend(more.into_iter().map(Into::into));
        self
    }

    /// Connects the first UART.
    #[must_use]
    pub fn console(self, console: Console<'_>) -> Self {
        let chardev = |kind, file| {
            let mut chardev = OsString::from(kind);
            chardev.push(value(file));
            [OsString::from("-chardev"), chardev]
        };
        match console {
            Console::Stdio => self.with(["-serial", "stdio"]),
            Console::Terminal => self.with(["-serial", "mon:stdio"]),
            Console::Typed(keys) => self
                .with(chardev(
                    "file,id=console,path=/dev/stdout,input-path=",
                    keys,
                ))
                .with(["-serial", "chardev:console"]),
        }
    }

    /// The file that is booted.
    #[must_use]
    pub fn kernel(self, image: &Path) -> Self {
        self.with(["-kernel".as_ref(), image.as_os_str()])
    }

    /// The initial file system of a Linux that is booted without the hypervisor.
    #[must_use]
    pub fn initrd(self, initrd: &Path) -> Self {
        self.with(["-initrd".as_ref(), initrd.as_os_str()])
    }

    /// The command line of what is booted.
    #[must_use]
    pub fn append(self, bootargs: &str) -> Self {
        self.with(["-append", bootargs])
    }

    /// The device tree, instead of QEMU's own.
    #[must_use]
    pub fn device_tree(self, blob: &Path) -> Self {
        self.with(["-dtb".as_ref(), blob.as_os_str()])
    }

    /// A file that is in memory at this address when the machine starts.
    #[must_use]
    pub fn loaded(self, file: &Path, address: u64) -> Self {
        let file = value(file);
        let device = format!("loader,file={file},addr={address:#x},force-raw=on");
        self.with(["-device".to_owned(), device])
    }

    /// Virtio devices in their modern form, as boards have them. QEMU's default is the legacy form.
    #[must_use]
    pub fn modern_virtio(self) -> Self {
        self.with(["-global", "virtio-mmio.force-legacy=false"])
    }

    /// A disk in the first free virtio slot, from a raw image.
    #[must_use]
    pub fn disk(self, image: &Path) -> Self {
        let mut drive = OsString::from("if=none,id=disk,format=raw,file=");
        drive.push(value(image));
        self.with(["-drive".into(), drive])
            .with(["-device", "virtio-blk-device,drive=disk"])
    }

    /// Two network cards on one cable, in the virtio slots `virtio0` and `virtio8` of the board file.
    #[must_use]
    pub fn cable(self) -> Self {
        let ends = [("left", 31), ("right", 23)];
        ends.into_iter().fold(self, |arguments, (end, bus)| {
            arguments
                .with(["-netdev".into(), format!("hubport,id={end},hubid=0")])
                .with([
                    "-device".into(),
                    format!("virtio-net-device,netdev={end},bus=virtio-mmio-bus.{bus}"),
                ])
        })
    }

    /// Stops before the first instruction, and waits for GDB on TCP port 1234.
    #[must_use]
    pub fn wait_for_debugger(self) -> Self {
        self.with(["-S", "-s"])
    }

    /// The arguments, in order.
    pub fn into_vec(self) -> Vec<OsString> {
        self.0
    }
}

/// A path as the value of an option: a comma ends a value unless it is doubled.
fn value(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine<'_> = Machine {
        machine: "virt",
        cpu: "cortex-a76",
        cores: 4,
        memory_mib: 2048,
    };
    const COMMON: &str = "-M virt -cpu cortex-a76 -smp 4 -m 2048M -display none -nodefaults ";

    fn text(arguments: Arguments) -> String {
        let words: Vec<_> = arguments
            .into_vec()
            .iter()
            .map(|it| it.to_string_lossy().into_owned())
            .collect();
        let text = words.join(" ");
        text.strip_prefix(COMMON).unwrap().to_owned()
    }

    #[test]
    fn the_command_line_describes_the_machine() {
        let booted = Arguments::new(&MACHINE)
            .console(Console::Terminal)
            .kernel(Path::new("a.img"));
        assert_eq!(text(booted), "-serial mon:stdio -kernel a.img");
    }

    /// The guests' own tests and the tests of the testbed need no Rust, so they have the machine and the core type in
    /// their own command lines.
    #[test]
    fn scripts_start_the_same_machine() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for script in [
            "guests/rt/boot_test.sh",
            "guests/linux/bare.sh",
            "testbed/tests/testbed.py",
        ] {
            let text = std::fs::read_to_string(root.join(script)).unwrap();
            let words = words(&text, script.ends_with(".py"));
            assert_eq!(values(&words, "-M"), [BARE], "{script}");
            assert_eq!(values(&words, "-cpu"), [CPU], "{script}");
        }
    }

    /// The words of a shell script or a Python program without its comments, without quotes and without what follows a `$`.
    fn words(text: &str, is_python: bool) -> Vec<String> {
        let is_space = |it: char| it.is_whitespace() || is_python && ",=()[]".contains(it);
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        let code = text.lines().filter(|it| !it.trim_start().starts_with('#'));
        for it in code.flat_map(|line| line.chars().chain(['\n'])) {
            match quote {
                Some(end) if it == end => quote = None,
                None if it == '"' || it == '\'' => quote = Some(it),
                None if is_space(it) => words.push(std::mem::take(&mut word)),
                _ => word.push(it),
            }
        }
        words.push(word);
        let known = |it: &String| it.split('$').next().unwrap_or_default().to_owned();
        words.retain(|it| !it.is_empty());
        words.iter().map(known).collect()
    }

    /// What follows an option, each time; for the name of a variable, what follows its first use.
    fn values(words: &[String], option: &str) -> Vec<String> {
        let following = |name: &str| -> Vec<String> {
            let pairs = words.windows(2).filter(|it| it[0] == name);
            pairs.map(|it| it[1].clone()).collect()
        };
        let value = |it: String| match it.chars().all(|it| it.is_ascii_lowercase()) {
            true => following(&it).into_iter().next().unwrap_or(it),
            false => it,
        };
        following(option).into_iter().map(value).collect()
    }

    #[test]
    fn commas_in_paths_do_not_end_an_option() {
        let file = Path::new("a,b");
        assert_eq!(
            text(Arguments::new(&MACHINE).disk(file)),
            "-drive if=none,id=disk,format=raw,file=a,,b -device virtio-blk-device,drive=disk"
        );
    }
}
