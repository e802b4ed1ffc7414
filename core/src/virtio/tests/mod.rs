// SPDX-License-Identifier: MIT OR Apache-2.0

mod driver;
mod frames;
mod hostile;
mod registers;
