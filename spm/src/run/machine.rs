// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running QEMU: its console is shown until it ends, or until it is ended by a signal or after a time.
//!
//! Whoever reads the console may stop to read, and then a write waits. So a thread of its own shows it, and what ends QEMU never waits
//! for that thread.

use crate::console::{Console, IDLE, Pipe};
use crate::failure::Failure;
use crate::output::Stdout;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use spumone_core::console::format::REFUSAL;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Exit code after `--timeout`, the same as timeout(1) returns.
const EXIT_TIMEOUT: u8 = 124;
/// How long QEMU may take to end when it is told to, and then the reader of the console to take the rest.
const GRACE: Duration = Duration::from_secs(2);
/// How often a process is looked at that is about to end.
const LOOK: Duration = Duration::from_millis(2);
/// Signals that end this process are passed on to QEMU as `SIGTERM`, so that it leaves the terminal as it was.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Where the console of a machine goes.
pub struct Shown {
    /// The terminal, or what stands for it.
    pub console: Console<Stdout>,
    /// The file that gets it too.
    pub log: Option<(Console<File>, PathBuf)>,
}

/// Starts this QEMU and shows its console until it ends, or is ended after so many seconds. It reads the keyboard itself.
pub fn run(mut qemu: Command, shown: Shown, timeout: Option<u64>) -> Result<ExitCode, Failure> {
    let signals = Signals::take()?;
    let spawned = qemu.stdout(Stdio::piped()).spawn();
    let mut qemu = Qemu(spawned.map_err(|error| {
        let program = Path::new(qemu.get_program());
        Failure::io("start", program, &error)
    })?);
    let end = timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let pipe = qemu.0.stdout.take();
    let is_stopped = Arc::new(AtomicBool::new(false));
    let (sender, said) = channel();
    let stopped = is_stopped.clone();
    thread::Builder::new()
        .spawn(move || shown.show(pipe, &stopped, &sender))
        .map_err(|error| Failure::environment(format!("cannot show the console: {error}")))?;
    let mut view = View::default();
    let status = loop {
        match view.is_whole {
            true => thread::sleep(LOOK),
            false => view.look(&said, IDLE),
        }
        if view.is_whole
            && let Some(status) = qemu.status()?
        {
            break Some(status);
        }
        let is_late = end.is_some_and(|end| Instant::now() >= end);
        if is_late || view.failure.is_some() || signals.last() != 0 {
            break None;
        }
    };
    let is_ended_here = status.is_none();
    let status = match status {
        Some(status) => status,
        None => {
            let status = qemu.stop()?;
            is_stopped.store(true, Ordering::Relaxed);
            let end = Instant::now() + GRACE;
            while !view.is_whole && Instant::now() < end {
                view.look(&said, IDLE);
            }
            status
        }
    };
    // From here on a signal ends this process at once: it may wait for the reader of its last words.
    let signal = signals.last();
    drop(signals);
    if let Some(failure) = view.failure {
        return Err(failure);
    }
    if view.is_refusal {
        let message = "the hypervisor has refused the image, and turned the machine off";
        return Err(Failure::environment(message).help("the last line above says which part of it"));
    }
    Ok(match timeout {
        _ if !is_ended_here => exit_code(status),
        _ if signal != 0 => ExitCode::from(128 + signal as u8),
        Some(seconds) => {
            say(format!("\nspm: stopped the machine after {seconds} s\n"));
            ExitCode::from(EXIT_TIMEOUT)
        }
        None => exit_code(status),
    })
}

/// What the thread that shows the console tells.
enum Said {
    /// The console cannot be shown. It goes on nevertheless, so that QEMU need not wait.
    Failed(Failure),
    /// All is shown. Whether it was a refusal of the image.
    Whole(bool),
}

impl Shown {
    /// Shows what comes out of the pipe, to its end; once the machine is stopped, only what is there.
    fn show(mut self, pipe: Option<ChildStdout>, is_stopped: &AtomicBool, sender: &Sender<Said>) {
        let pipe = pipe.map(Pipe::new);
        let mut beginning = Beginning::default();
        let mut has_failed = false;
        let mut tell = |result: Result<(), Failure>| {
            if let Err(failure) = result
                && !std::mem::replace(&mut has_failed, true)
            {
                // An error here means that the main thread no longer receives: the message is dropped.
                let _ = sender.send(Said::Failed(failure));
            }
        };
        while let Some(bytes) = pipe.as_ref().and_then(|pipe| pipe.read(IDLE)) {
            // A process that QEMU has started may still hold the other end of the pipe.
            if bytes.is_empty() && is_stopped.load(Ordering::Relaxed) {
                break;
            }
            beginning.feed(&bytes);
            tell(self.each(|console| console.feed(&bytes), |log| log.feed(&bytes)));
        }
        tell(self.each(Console::end, Console::end));
        // As above.
        let _ = sender.send(Said::Whole(beginning.is_refusal()));
    }

    /// Does this with the console, and that with the log, even if one of them fails.
    fn each(
        &mut self,
        shows: impl FnOnce(&mut Console<Stdout>) -> io::Result<()>,
        logs: impl FnOnce(&mut Console<File>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let shown = shows(&mut self.console)
            .map_err(|error| Failure::io("show", Path::new("the console"), &error));
        let logged = self.log.as_mut().map_or(Ok(()), |(console, path)| {
            logs(console).map_err(|error| Failure::io("write", path, &error))
        });
        shown.and(logged)
    }
}

/// What is known of the console.
#[derive(Default)]
struct View {
    failure: Option<Failure>,
    is_whole: bool,
    is_refusal: bool,
}

impl View {
    /// Takes what the other thread says within this time.
    fn look(&mut self, said: &Receiver<Said>, at_most: Duration) {
        match said.recv_timeout(at_most) {
            Ok(Said::Failed(failure)) => {
                self.failure.get_or_insert(failure);
            }
            Ok(Said::Whole(is_refusal)) => {
                self.is_whole = true;
                self.is_refusal = is_refusal;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // It has panicked, and said so.
                let failure = Failure::environment("cannot show the console any more");
                self.failure.get_or_insert(failure);
                self.is_whole = true;
            }
        }
    }
}

/// The process. However this one goes on, it does not outlive it.
struct Qemu(Child);

impl Qemu {
    /// How it has ended, if it has.
    fn status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.0.try_wait().map_err(|error| not_waited(&error))
    }

    /// Ends it: well, if it does so in time.
    fn stop(&mut self) -> Result<ExitStatus, Failure> {
        let end = Instant::now() + GRACE;
        let mut is_told = false;
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                break;
            }
            if !is_told {
                // An error here means that it has just ended by itself.
                let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
                is_told = true;
            }
            thread::sleep(LOOK);
        }
        // As above.
        let _ = self.0.kill();
        self.0.wait().map_err(|error| not_waited(&error))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both do nothing if it has ended, and the status is known.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn not_waited(error: &io::Error) -> Failure {
    Failure::environment(format!("cannot wait for QEMU: {error}"))
}

/// The signals that end this process: until it is dropped they are only noted.
struct Signals {
    number: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Signals {
    fn take() -> Result<Self, Failure> {
        let signals = Self {
            number: Arc::new(AtomicUsize::new(0)),
            is_over: Arc::new(AtomicBool::new(false)),
        };
        for number in ENDING {
            let over = signals.is_over.clone();
            signal_hook::flag::register_conditional_default(number, over)
                .and_then(|_| {
                    let noted = signals.number.clone();
                    signal_hook::flag::register_usize(number, noted, number as usize)
                })
                .map_err(|error| Failure::environment(format!("cannot handle signals: {error}")))?;
        }
        Ok(signals)
    }

    /// The number of the last signal, or 0.
    fn last(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Prints this on standard error, if its reader takes it in time.
fn say(text: String) {
    let (sender, done) = channel::<()>();
    let says = move || {
        // Nobody is left to tell of an error.
        let _ = io::stderr().write_all(text.as_bytes());
        drop(sender);
    };
    if thread::Builder::new().spawn(says).is_ok() {
        // An error is what ends the wait: the other thread is done, or the time is over.
        let _ = done.recv_timeout(GRACE);
    }
}

/// What the machine prints first: before any guest runs, so no guest can forge it.
#[derive(Default)]
struct Beginning(Vec<u8>);

impl Beginning {
    /// Longer than the hypervisor's line about an image that it refuses.
    const SIZE: usize = 256;

    fn feed(&mut self, bytes: &[u8]) {
        let room = Self::SIZE - self.0.len();
        self.0.extend(bytes.iter().take(room));
    }

    /// Whether the hypervisor has refused the image.
    fn is_refusal(&self) -> bool {
        let text = String::from_utf8_lossy(&self.0);
        text.trim_start().starts_with(REFUSAL)
    }
}

/// An exit status as shells return it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_what_the_machine_prints_first() {
        let is_refusal = |chunks: &[&str]| {
            let mut beginning = Beginning::default();
            for chunk in chunks {
                beginning.feed(chunk.as_bytes());
            }
            beginning.is_refusal()
        };
        let line = "spumone does not start: the description differs from its hash\r\n";
        assert!(is_refusal(&["\r\n", line]));
        assert!(is_refusal(&[
            "\r\nspumone does",
            " not start: ",
            &"x".repeat(1000)
        ]));
        assert!(!is_refusal(&["Spumone 0.1.0 on qemu-virt\r\n", line]));
        assert!(!is_refusal(&[]));
    }
}
