// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of files and paths, as a terminal may get it: what is in it moves no cursor, changes no title, and shows no other order than the
//! file has.
//!
//! Each character is replaced by one character, so that lines and columns stay those of the file: a control character by its
//! picture (ESC by ␛), the control characters of ISO 6429 (C1) and those that change the direction of text by �.

/// In place of a character that has no picture.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// What is shown in place of a character; `None`: itself.
fn instead(character: char) -> Option<char> {
    match character {
        '\0'..=' ' if character != ' ' => char::from_u32(0x2400 + u32::from(character)),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}' => Some(REPLACEMENT),
        // Marks, embeddings, overrides and isolates of the bidirectional algorithm, and the ends of lines and paragraphs.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(REPLACEMENT)
        }
        _ => None,
    }
}

/// A text, with what stands in place of some characters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Escaped {
    /// The text.
    pub text: String,
    /// Where, in the original, a character ends that has another length here, and by how many bytes all up to it are longer.
    longer: Vec<(usize, usize)>,
}

impl Escaped {
    /// A text of several lines: line feeds, tabulators and carriage returns before line feeds stay.
    pub fn of(text: &str) -> Self {
        let mut escaped = Self::default();
        let mut characters = text.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let ends_line = character == '\r' && characters.peek().is_some_and(|it| it.1 == '\n');
            let stays = matches!(character, '\n' | '\t') || ends_line;
            let shown = instead(character).filter(|_| !stays).unwrap_or(character);
            escaped.text.push(shown);
            let end = at + character.len_utf8();
            // No replacement is shorter than what it replaces.
            let longer = escaped.text.len() - end;
            if longer != escaped.longer.last().map_or(0, |it| it.1) {
                escaped.longer.push((end, longer));
            }
        }
        escaped
    }

    /// Where the byte is here that was at `offset`.
    pub fn place(&self, offset: usize) -> usize {
        let before = self.longer.partition_point(|(end, _)| *end <= offset);
        let last = before.checked_sub(1).and_then(|it| self.longer.get(it));
        offset + last.map_or(0, |it| it.1)
    }
}

/// A text of several lines, as a terminal may get it.
pub fn text(text: &str) -> String {
    Escaped::of(text).text
}

/// A text within a line: all that ends or divides lines is replaced, too.
pub fn line(text: &str) -> String {
    let shown = |character| instead(character).unwrap_or(character);
    text.chars().map(shown).collect()
}

/// A stream of UTF-8, byte by byte, as a terminal may get it.
#[derive(Debug, Default)]
pub struct Stream {
    /// The beginning of a character.
    held: Vec<u8>,
}

impl Stream {
    /// Takes a byte, and appends to `out` what is complete.
    pub fn feed(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held.push(byte);
        match std::str::from_utf8(&self.held) {
            Ok(character) => {
                out.extend(text(character).bytes());
                self.held.clear();
            }
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                self.held.pop();
                let was_begun = !self.held.is_empty();
                self.end(out);
                match was_begun {
                    // The byte may begin another one.
                    true => self.feed(byte, out),
                    false => Self::replace(out),
                }
            }
        }
    }

    /// Nothing follows what was begun.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if !self.held.is_empty() {
            Self::replace(out);
            self.held.clear();
        }
    }

    fn replace(out: &mut Vec<u8>) {
        out.extend(REPLACEMENT.encode_utf8(&mut [0; 4]).bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_the_cursor_is_shown_as_its_picture() {
        assert_eq!(line("a\x1b]0;x\x07b\r\n\t\x7f"), "a␛]0;x␇b␍␊␉␡");
        assert_eq!(line("\u{9b}31m\u{202e}abc\u{2066}"), "�31m�abc�");
        assert_eq!(line("Grün 字 🙂"), "Grün 字 🙂");
    }

    #[test]
    fn a_text_keeps_its_lines_and_tells_where_its_bytes_are() {
        let text = "a = 1\r\n\tä\x1b\u{202e}x\ry\n";
        let escaped = Escaped::of(text);
        assert_eq!(escaped.text, "a = 1\r\n\tä␛�x␍y\n");
        for (number, (at, _)) in text.char_indices().enumerate() {
            let place = escaped.text.char_indices().nth(number).map(|it| it.0);
            assert_eq!(Some(escaped.place(at)), place, "{at}");
        }
        assert_eq!(escaped.place(text.len()), escaped.text.len());
    }

    #[test]
    fn a_stream_is_shown_character_by_character() {
        let shown = |bytes: &[u8]| {
            let mut out = Vec::new();
            let mut stream = Stream::default();
            bytes.iter().for_each(|byte| stream.feed(*byte, &mut out));
            stream.end(&mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        assert_eq!(shown("ä\x1b[2J\u{9b}\n字".as_bytes()), "ä␛[2J�\n字");
        assert_eq!(shown(b"\xff\xe2\x80a\xc3"), "��a�");
    }
}
