// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that runs: its console, its keyboard, and its end.

use crate::console::{Console, Facts};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What the hypervisor prints when it must stop itself.
const EPITAPH: &str = "=== spumone died";
/// How long to read on after the epitaph begins, for its registers.
const EPITAPH_TIME: Duration = Duration::from_secs(2);

/// A running machine. Dropping it ends it.
pub struct Machine {
    facts: Facts,
    qemu: Child,
    keyboard: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
    /// QEMU's own messages. Separate, since they could come in the middle of a guest's line.
    message_pipe: Receiver<Vec<u8>>,
    messages: Vec<u8>,
    /// Removed at the end, since it is large.
    image: Option<PathBuf>,
    end: Instant,
    limit: Duration,
    /// The test demands that the hypervisor stops itself.
    is_to_die: bool,
}

/// Receives what is written to a pipe.
fn receive(mut pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Some(count) = pipe.as_mut().and_then(|pipe| pipe.read(&mut buffer).ok()) {
            if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

impl Machine {
    pub(crate) fn start(
        facts: Facts,
        mut command: Command,
        image: Option<PathBuf>,
        limit: Duration,
    ) -> Self {
        let mut qemu = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let output = receive(qemu.stdout.take());
        let message_pipe = receive(qemu.stderr.take());
        Self {
            facts,
            keyboard: qemu.stdin.take(),
            qemu,
            output,
            bytes: Vec::new(),
            message_pipe,
            messages: Vec::new(),
            image,
            end: Instant::now() + limit,
            limit,
            is_to_die: false,
        }
    }

    /// Waits until the hypervisor stops itself with a message, and returns the console.
    pub fn dies(mut self) -> Console {
        self.is_to_die = true;
        while self.listen() {}
        self.console()
    }

    /// Types these keys.
    pub fn type_keys(&mut self, keys: &str) {
        if let Some(keyboard) = &mut self.keyboard {
            // If the machine has ended, the test fails elsewhere.
            let _ = keyboard
                .write_all(keys.as_bytes())
                .and_then(|()| keyboard.flush());
        }
    }

    /// Types these keys once a second, until `guest` has a line with `text` in it.
    pub fn type_until(&mut self, keys: &str, guest: &str, text: &str) -> Console {
        const PAUSE: Duration = Duration::from_secs(1);
        let mut next = Instant::now();
        loop {
            let console = self.console();
            if console.says(guest, text) {
                return console;
            }
            if Instant::now() >= next {
                self.type_keys(keys);
                next = Instant::now() + PAUSE;
            }
            if !self.listen_for(PAUSE) {
                self.fail(&format!(
                    "the machine ended before: {guest} says \"{text}\""
                ));
            }
        }
    }

    /// Waits until `guest` ("spumone" for the hypervisor) has a line, finished or not, with `text`
    /// in it, and returns the console so far.
    pub fn wait_for(&mut self, guest: &str, text: &str) -> Console {
        self.wait_until(&format!("{guest} says \"{text}\""), |console| {
            console.says(guest, text)
        })
    }

    /// Waits until the console satisfies `done`, and returns it.
    pub fn wait_until(&mut self, what: &str, done: impl Fn(&Console) -> bool) -> Console {
        loop {
            let console = self.console();
            if done(&console) {
                return console;
            }
            if !self.listen() {
                self.fail(&format!("the machine ended before: {what}"));
            }
        }
    }

    /// Waits until the machine turns itself off, and returns the console.
    pub fn finish(mut self) -> Console {
        while self.listen() {}
        let status = self.wait();
        if !status.success() {
            self.fail(&format!("QEMU ended with {status}"));
        }
        self.console()
    }

    /// Waits until the hypervisor has said `text`, types these keys, and waits until the machine turns itself off. Unlike
    /// [`Self::wait_until`] it does not read all of the console again and again, so that may be long.
    pub fn finish_by(mut self, text: &str, keys: &str) -> Console {
        let mut searched = 0;
        while !contains(&self.bytes[searched..], text) {
            searched = self.bytes.len().saturating_sub(text.len());
            if !self.listen() {
                self.fail(&format!(
                    "the machine ended before the hypervisor said \"{text}\""
                ));
            }
        }
        self.type_keys(keys);
        self.finish()
    }

    /// The console so far, and QEMU's own messages after it.
    pub fn console(&self) -> Console {
        let newline: &[u8] = if self.messages.is_empty() { b"" } else { b"\n" };
        let all = [&self.bytes, newline, &self.messages].concat();
        Console::new(self.facts.clone(), &all)
    }

    /// Waits for more output; false if there will be none. Fails the test at the time limit or at an epitaph.
    fn listen(&mut self) -> bool {
        self.listen_for(self.limit)
    }

    /// As [`Self::listen`], for this time at most.
    fn listen_for(&mut self, most: Duration) -> bool {
        self.messages.extend(self.message_pipe.try_iter().flatten());
        let left = self.end.saturating_duration_since(Instant::now());
        match self.output.recv_timeout(left.min(most)) {
            Ok(bytes) if !left.is_zero() => {
                self.bytes.extend(bytes);
                // QEMU writes byte by byte, and parsing the console after each byte would be slower than QEMU.
                self.bytes.extend(self.output.try_iter().flatten());
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.messages.extend(self.message_pipe.iter().flatten());
                return false;
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < self.end => return true,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {
                let seconds = self.limit.as_secs();
                self.fail(&format!("killed after {seconds} s (SPUMONE_LIMIT)"));
            }
        }
        let tail = self.bytes.len().saturating_sub(8192);
        if String::from_utf8_lossy(&self.bytes[tail..]).contains(EPITAPH) {
            let end = Instant::now() + EPITAPH_TIME;
            while let Ok(bytes) = self
                .output
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                self.bytes.extend(bytes);
            }
            if self.is_to_die {
                return false;
            }
            self.fail("the hypervisor died");
        }
        true
    }

    fn wait(&mut self) -> ExitStatus {
        match self.qemu.wait() {
            Ok(status) => status,
            Err(error) => self.fail(&format!("cannot wait for QEMU: {error}")),
        }
    }

    fn fail(&self, why: &str) -> ! {
        self.console().fail(why)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // An error means that QEMU has already ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if let Some(image) = &self.image {
            let _ = std::fs::remove_file(image);
        }
    }
}
