// SPDX-License-Identifier: MIT OR Apache-2.0
//! Xen's console: lines of domains without what Xen puts before them.

/// Before each line of a domain, with its number and a colon.
const DOMAIN: &[u8] = b"(XEN) DOM";
/// Xen breaks a domain's line after as many bytes (`SBSA_UART_OUT_BUF_SIZE` - 2 in `xen/include/asm-arm/vpl011.h`).
const LONGEST: usize = 126;

/// The log with the domains' lines as they have written them: tags removed, broken lines joined.
pub fn plain(log: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(log.len());
    let mut open: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for line in log.split_inclusive(|&it| it == b'\n') {
        let Some((domain, text)) = of_domain(line) else {
            plain.extend(line);
            continue;
        };
        let is_broken = text.len() == LONGEST && !text.ends_with(b"\r");
        let at = open.iter().position(|(other, _)| *other == domain);
        let mut whole = at.map_or_else(Vec::new, |at| open.swap_remove(at).1);
        whole.extend(text);
        if is_broken {
            open.push((domain, whole));
        } else {
            plain.append(&mut whole);
            plain.push(b'\n');
        }
    }
    for (_, text) in open {
        plain.extend(text);
        plain.push(b'\n');
    }
    plain
}

/// The domain's number and its text, without what ends the line on the UART.
fn of_domain(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(DOMAIN)?;
    let colon = rest.iter().position(|&it| it == b':')?;
    let (domain, text) = rest.split_at(colon);
    let text = text.strip_prefix(b": ")?;
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    Some((domain, text.strip_suffix(b"\r").unwrap_or(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: &str) -> String {
        String::from_utf8(plain(log.as_bytes())).unwrap()
    }

    #[test]
    fn a_domains_line_is_its_own() {
        assert_eq!(
            lines("(XEN) Bringing up CPU1\r\n(XEN) DOM1: rt-result max_ns=1\r\r\n"),
            "(XEN) Bringing up CPU1\r\nrt-result max_ns=1\r\n"
        );
    }

    #[test]
    fn a_broken_line_is_whole_again() {
        let long = "a".repeat(LONGEST);
        let log = format!("(XEN) DOM2: {long}\r\n(XEN) DOM1: b\r\r\n(XEN) DOM2: c\r\r\n");
        assert_eq!(lines(&log), format!("b\r\n{long}c\r\n"));
        assert_eq!(lines(&format!("(XEN) DOM2: {long}")), format!("{long}\n"));
    }
}
