// SPDX-License-Identifier: MIT OR Apache-2.0
//! The focus, and the commands to the hypervisor.
//!
//! A command is [`InputSwitch::ESCAPE`] and one key. Everything else goes to the guest with the
//! input focus as it is typed. There is no time limit on the key, so that nothing here depends
//! on time.

use spumone_config::packed::PowerMode;
use spumone_config::types::{GuestId, MAX_GUESTS};

const HELP: &str = "\
Ctrl-] and then:
  1 to 8  type to that guest
  n, Tab  type to the next guest
  s       show the state of all guests, and what has used each core since the last s
  r       restart the guest that has the keyboard
  p       choose the power mode, by one more key: p performance, b balanced, s saving
  x       stop the machine
  Ctrl-]  send Ctrl-] to the guest
  ?, h    this text
";
const ASK_STOP: &str = "stop the machine? x again does, any other key does not\n";
const NOT_STOPPED: &str = "the machine goes on\n";
const ASK_MODE: &str = "power mode? p performance, b balanced, s saving\n";
const NO_SUCH_MODE: &str = "no such power mode, it stays as it is; Ctrl-] p and then p, b or s\n";
const NO_SUCH_GUEST: &str = "no guest of this number has a console\n";
const UNKNOWN_KEY: &str = "no such command; Ctrl-] then ? lists them\n";

/// The effect of a typed byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputEffect {
    /// The byte goes to this guest's virtual UART.
    Deliver(GuestId, u8),
    /// This guest gets the input focus: call [`super::Console::set_focus`] and [`super::Answers::queue_focus`].
    Focus(GuestId),
    /// Print the state of all guests, and the users of each core.
    Status,
    /// Restart this guest.
    Restart(GuestId),
    /// Stop the machine; the operator has asked for it twice.
    Stop,
    /// Change the mode of `[power]`.
    Power(PowerMode),
    /// Print this text, which consists of whole lines, as a message of the hypervisor.
    Notice(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes go to the guest.
    Typing,
    /// The escape key was pressed.
    Command,
    /// The operator has asked once to stop the machine.
    ConfirmStop,
    /// The operator chooses a mode of `[power]`.
    ChooseMode,
}

/// The state of the keyboard; it belongs to the core that serves the UART's interrupt.
#[derive(Clone, Debug)]
pub struct InputSwitch {
    /// Bit n: `GuestId(n)` has a console.
    consoles: u8,
    focus: GuestId,
    state: State,
}

impl InputSwitch {
    /// The key that starts a command, Ctrl-]: like telnet's. It is not Ctrl-a, because QEMU uses that.
    pub const ESCAPE: u8 = 0x1d;

    /// Input for the guests whose bit is set in `consoles` (bit n: `GuestId(n)` has a console);
    /// `focus` gets it first.
    pub const fn new(consoles: u8, focus: GuestId) -> Self {
        Self {
            consoles,
            focus,
            state: State::Typing,
        }
    }

    /// Takes one typed byte.
    pub fn feed(&mut self, byte: u8) -> Option<InputEffect> {
        match core::mem::replace(&mut self.state, State::Typing) {
            State::Typing if byte == Self::ESCAPE => {
                self.state = State::Command;
                None
            }
            State::Typing => self.deliver(byte),
            State::Command => self.command(byte),
            State::ConfirmStop if byte == b'x' => Some(InputEffect::Stop),
            State::ConfirmStop => Some(InputEffect::Notice(NOT_STOPPED)),
            State::ChooseMode => Some(match mode_of(byte) {
                Some(mode) => InputEffect::Power(mode),
                None => InputEffect::Notice(NO_SUCH_MODE),
            }),
        }
    }

    fn command(&mut self, key: u8) -> Option<InputEffect> {
        match key {
            Self::ESCAPE => self.deliver(key),
            b'1'..=b'8' => self.give_focus(GuestId(key - b'1')),
            b'n' | b'\t' => {
                let next = (1..=MAX_GUESTS as u8)
                    .map(|step| GuestId((self.focus.0 + step) % MAX_GUESTS as u8))
                    .find(|&guest| self.has_console(guest))?;
                self.give_focus(next)
            }
            b's' => Some(InputEffect::Status),
            b'r' => Some(InputEffect::Restart(self.focus)),
            b'x' => {
                self.state = State::ConfirmStop;
                Some(InputEffect::Notice(ASK_STOP))
            }
            b'p' => {
                self.state = State::ChooseMode;
                Some(InputEffect::Notice(ASK_MODE))
            }
            b'?' | b'h' => Some(InputEffect::Notice(HELP)),
            _ => Some(InputEffect::Notice(UNKNOWN_KEY)),
        }
    }

    fn give_focus(&mut self, guest: GuestId) -> Option<InputEffect> {
        if !self.has_console(guest) {
            return Some(InputEffect::Notice(NO_SUCH_GUEST));
        }
        self.focus = guest;
        Some(InputEffect::Focus(guest))
    }

    fn deliver(&self, byte: u8) -> Option<InputEffect> {
        self.has_console(self.focus)
            .then_some(InputEffect::Deliver(self.focus, byte))
    }

    fn has_console(&self, guest: GuestId) -> bool {
        guest.index() < MAX_GUESTS && self.consoles & 1 << guest.0 != 0
    }
}

const fn mode_of(key: u8) -> Option<PowerMode> {
    match key {
        b'p' => Some(PowerMode::Performance),
        b'b' => Some(PowerMode::Balanced),
        b's' => Some(PowerMode::Saving),
        _ => None,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const A: GuestId = GuestId(0);
    const B: GuestId = GuestId(2);
    const ESC: u8 = InputSwitch::ESCAPE;

    /// Guests 0 and 2 have consoles.
    fn switch() -> InputSwitch {
        InputSwitch::new(0b101, A)
    }

    fn feed(switch: &mut InputSwitch, keys: &[u8]) -> Vec<InputEffect> {
        keys.iter().filter_map(|&key| switch.feed(key)).collect()
    }

    #[test]
    fn what_is_typed_goes_to_the_focused_guest() {
        let mut switch = switch();
        for byte in (0..=255).filter(|&byte| byte != ESC) {
            assert_eq!(switch.feed(byte), Some(InputEffect::Deliver(A, byte)));
        }
    }

    #[test]
    fn digits_choose_a_guest_by_number_from_one() {
        let mut switch = switch();
        assert_eq!(
            feed(&mut switch, &[ESC, b'3', b'3']),
            [InputEffect::Focus(B), InputEffect::Deliver(B, b'3')]
        );
        assert_eq!(
            feed(&mut switch, &[ESC, b'2', b'y']),
            [
                InputEffect::Notice(NO_SUCH_GUEST),
                InputEffect::Deliver(B, b'y')
            ]
        );
    }

    #[test]
    fn next_gives_the_focus_to_each_guest_with_a_console_in_turn() {
        let mut switch = switch();
        assert_eq!(
            feed(&mut switch, &[ESC, b'n', ESC, b'\t', b'z']),
            [
                InputEffect::Focus(B),
                InputEffect::Focus(A),
                InputEffect::Deliver(A, b'z')
            ]
        );
    }

    #[test]
    fn the_escape_key_twice_sends_it() {
        assert_eq!(
            feed(&mut switch(), &[ESC, ESC, b'n']),
            [InputEffect::Deliver(A, ESC), InputEffect::Deliver(A, b'n')]
        );
    }

    #[test]
    fn stop_needs_a_second_x() {
        assert_eq!(
            feed(&mut switch(), &[ESC, b'x', b'x', b'x']),
            [
                InputEffect::Notice(ASK_STOP),
                InputEffect::Stop,
                InputEffect::Deliver(A, b'x')
            ]
        );
        assert_eq!(
            feed(&mut switch(), &[ESC, b'x', ESC, b'x']),
            [
                InputEffect::Notice(ASK_STOP),
                InputEffect::Notice(NOT_STOPPED),
                InputEffect::Deliver(A, b'x')
            ]
        );
    }

    #[test]
    fn a_power_mode_needs_a_second_key() {
        let modes = [
            (b'p', PowerMode::Performance),
            (b'b', PowerMode::Balanced),
            (b's', PowerMode::Saving),
        ];
        for (key, mode) in modes {
            assert_eq!(
                feed(&mut switch(), &[ESC, b'p', key, b'p']),
                [
                    InputEffect::Notice(ASK_MODE),
                    InputEffect::Power(mode),
                    InputEffect::Deliver(A, b'p')
                ]
            );
        }
        for key in [b'x', b'P', b'1', b'\r', ESC, 0] {
            assert_eq!(
                feed(&mut switch(), &[ESC, b'p', key, b's']),
                [
                    InputEffect::Notice(ASK_MODE),
                    InputEffect::Notice(NO_SUCH_MODE),
                    InputEffect::Deliver(A, b's')
                ]
            );
        }
    }

    #[test]
    fn the_other_commands() {
        assert_eq!(
            feed(
                &mut switch(),
                &[ESC, b's', ESC, b'r', ESC, b'?', ESC, b'h', ESC, b'q']
            ),
            [
                InputEffect::Status,
                InputEffect::Restart(A),
                InputEffect::Notice(HELP),
                InputEffect::Notice(HELP),
                InputEffect::Notice(UNKNOWN_KEY)
            ]
        );
    }

    #[test]
    fn without_any_console_nothing_is_delivered() {
        let mut switch = InputSwitch::new(0, A);
        assert_eq!(feed(&mut switch, &[b'a', ESC, b'n', ESC, ESC]), []);
        // A focus on a guest that does not exist.
        let mut switch = InputSwitch::new(0xff, GuestId(200));
        assert_eq!(feed(&mut switch, b"a"), []);
    }
}
