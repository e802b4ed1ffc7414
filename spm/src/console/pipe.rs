// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes out of a pipe, or over a serial line, as it comes.

use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes read at once.
const SIZE: usize = 4096;
/// How many times so much may wait to be taken. What writes faster waits itself.
const QUEUED: usize = 64;

/// A pipe, or a serial line, that a thread reads.
pub struct Pipe(Receiver<Vec<u8>>);

impl Pipe {
    /// Begins to read.
    pub fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(QUEUED);
        std::thread::spawn(move || {
            let mut buffer = [0; SIZE];
            loop {
                match pipe.read(&mut buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // An error is the end, too: the cable of a serial line was pulled out.
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        if sender.send(buffer[..count].to_vec()).is_err() {
                            break;
                        }
                    }
                }
            }
        });
        Self(receiver)
    }

    /// What has come, after a wait of this at most; `None`: nothing comes any more.
    pub fn read(&self, at_most: Duration) -> Option<Vec<u8>> {
        match self.0.recv_timeout(at_most) {
            Ok(mut bytes) => {
                // More may come meanwhile, without end.
                bytes.extend(self.0.try_iter().take(QUEUED).flatten());
                Some(bytes)
            }
            Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}
