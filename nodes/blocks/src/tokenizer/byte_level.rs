//! GPT-2's spelling of bytes as printable characters.

/// Returns the character that stands for a byte.
#[cfg(test)]
pub(super) fn character(byte: u8) -> char {
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + rank).expect("invariant: 256 + 68 is a character")
}

/// Returns the bytes that a token of the vocabulary spells; characters outside the spelling stand for themselves.
pub(super) fn bytes(token: &str) -> Box<[u8]> {
    let mut out = Vec::with_capacity(token.len());
    for c in token.chars() {
        match byte(c) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.into()
}

fn byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0..=255 => u8::try_from(code).ok().filter(|&b| printable(b)),
        code @ 256..=323 => (0..=255u8).filter(|&b| !printable(b)).nth(code as usize - 256),
        _ => None,
    }
}

fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        for b in 0..=255u8 {
            assert_eq!(&*bytes(&character(b).to_string()), [b]);
        }
        assert_eq!(character(b' '), 'Ġ');
        assert_eq!(character(b'\n'), 'Ċ');
    }
}
