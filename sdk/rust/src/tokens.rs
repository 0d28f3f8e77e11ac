//! Estimates how many model tokens a text costs, and cuts it, as the host does: 0.25 for
//! each code point, 1.5 for one of Chinese, Japanese or Korean, 2 for another one above
//! U+FFFF (`abi/ABI.md` §3 has the ranges), the sum rounded up.

use crate::abi::{PLAIN_QUARTERS, QUARTERS_PER_TOKEN, WEIGHTS};

/// What `text` costs, in tokens. It takes time linear in the text.
pub fn estimate(text: &str) -> usize {
    let quarters: u64 = text.chars().map(quarters).sum();
    let unit = QUARTERS_PER_TOKEN as u64;
    // A 32-bit memory holds no text that costs more.
    ((quarters + unit - 1) / unit) as usize
}

/// The longest prefix of `text` of whole code points that costs at most `max` tokens.
pub fn cut(text: &str, max: usize) -> &str {
    let limit = (max as u64).saturating_mul(QUARTERS_PER_TOKEN as u64);
    let mut spent = 0;
    for (at, c) in text.char_indices() {
        spent += quarters(c);
        if spent > limit {
            return &text[..at];
        }
    }
    text
}

fn quarters(c: char) -> u64 {
    let c = c as u32;
    if c < WEIGHTS[0].0 {
        return PLAIN_QUARTERS as u64; // Most of most texts.
    }
    let range = WEIGHTS.iter().find(|range| c <= range.1);
    match range {
        Some(&(first, _, quarters)) if c >= first => quarters as u64,
        _ => PLAIN_QUARTERS as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates() {
        for (text, want) in [
            ("", 0),
            ("a", 1),
            ("abcd", 1),
            ("abcde", 2),
            ("数据库", 5),
            ("😀", 2),
            ("😀a", 3),
            ("ﾊ", 2),
            ("Ünïcö", 2),
            ("\u{2fff}\u{3100}\u{fffd}\u{fff0}", 1), // beside the ranges
            ("\u{2a6e0}\u{2ebf0}\u{10ffff}", 6),
            ("\u{20000}\u{2ebef}", 3),
        ] {
            assert_eq!(estimate(text), want, "{:?}", text);
        }
    }

    #[test]
    fn cuts_as_long_as_it_can() {
        let text = "hello, 世界 😀 und Größe";
        for max in 0..=estimate(text) + 1 {
            let prefix = cut(text, max);
            assert!(estimate(prefix) <= max);
            assert!(text.starts_with(prefix));
            if let Some(next) = text[prefix.len()..].chars().next() {
                assert!(estimate(&format!("{}{}", prefix, next)) > max, "{max}");
            }
        }
        assert_eq!(cut(text, usize::MAX), text);
    }
}
