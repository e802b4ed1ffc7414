// SPDX-License-Identifier: MIT OR Apache-2.0

mod agreement;
mod answers;
mod driver;
mod frames;
mod fuzz;
mod hostile;
mod large;
mod looks;
mod oracle;
mod packets;
mod registers;
