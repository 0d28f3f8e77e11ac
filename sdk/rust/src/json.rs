//! A small reader and writer of JSON (RFC 8259), for what the host and web services say.
//!
//! It is here because serde_json would add some 60 KiB to each module and twenty crates to
//! what an operator has to trust. It reads into one tree and does not know the types of
//! the hand. What it reads may be hostile: nesting is bounded, and a text of n bytes takes
//! memory of at most some 40 n.

use std::borrow::Cow;
use std::fmt;

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: usize = 128;

/// One value of JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number without fraction and exponent that fits.
    Integer(i64),
    /// Any other number. It is finite when it was read.
    Number(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object: its members in their order.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Makes an object of members.
    pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
        Value::Object(
            members
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
        )
    }

    /// The member called `name`, the last one if there are more; `None` if there is none
    /// or this is no object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().rev().find(|m| m.0 == name).map(|m| &m.1),
            _ => None,
        }
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The truth, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Boolean(b) => Some(*b),
            _ => None,
        }
    }

    /// The number, if this is an integer.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Integer(n) => Some(*n),
            _ => None,
        }
    }

    /// The number, if this is one, of either form.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Integer(n) => Some(*n as f64),
            Value::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// The items, if this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Value {
        Value::String(s.to_owned())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Value {
        Value::String(s)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Boolean(b)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Integer(n)
    }
}

impl From<f64> for Value {
    fn from(n: f64) -> Value {
        Value::Number(n)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Value {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}

/// The value as JSON on one line. A number that JSON does not have (an infinity, not a
/// number) is `null`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Boolean(b) => f.write_str(if *b { "true" } else { "false" }),
            Value::Integer(n) => n.fmt(f),
            Value::Number(n) if n.is_finite() => write!(f, "{:?}", n),
            Value::Number(_) => f.write_str("null"),
            Value::String(s) => write_string(f, s),
            Value::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    item.fmt(f)?;
                }
                f.write_str("]")
            }
            Value::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write_string(f, name)?;
                    f.write_str(":")?;
                    value.fmt(f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_string(f: &mut dyn fmt::Write, s: &str) -> fmt::Result {
    f.write_str("\"")?;
    let mut written = 0;
    for (at, byte) in s.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        f.write_str(&s[written..at])?;
        match byte {
            b'"' => f.write_str("\\\"")?,
            b'\\' => f.write_str("\\\\")?,
            b'\n' => f.write_str("\\n")?,
            _ => write!(f, "\\u{:04x}", byte)?,
        }
        written = at + 1;
    }
    f.write_str(&s[written..])?;
    f.write_str("\"")
}

/// Writes an object on one line, member by member. It is apart from `Value` because a
/// module that shows a `Value` brings 25 KiB along to show its numbers.
pub(crate) struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    pub(crate) fn new() -> ObjectWriter {
        ObjectWriter {
            text: String::from("{"),
        }
    }

    pub(crate) fn string(mut self, name: &str, value: &str) -> ObjectWriter {
        self.name(name);
        self.push_string(value);
        self
    }

    pub(crate) fn integer(mut self, name: &str, value: i64) -> ObjectWriter {
        self.name(name);
        self.text.push_str(&value.to_string());
        self
    }

    /// Writes an array of pairs of strings.
    pub(crate) fn pairs(mut self, name: &str, pairs: &[(String, String)]) -> ObjectWriter {
        self.name(name);
        self.text.push('[');
        for (i, (first, second)) in pairs.iter().enumerate() {
            self.text.push_str(if i > 0 { ",[" } else { "[" });
            self.push_string(first);
            self.text.push(',');
            self.push_string(second);
            self.text.push(']');
        }
        self.text.push(']');
        self
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.text.push('}');
        self.text.into_bytes()
    }

    fn name(&mut self, name: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.push_string(name);
        self.text.push(':');
    }

    fn push_string(&mut self, s: &str) {
        // A string takes what is written to it.
        let _ = write_string(&mut self.text, s);
    }
}

/// Why a text is not JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    offset: usize,
    reason: &'static str,
}

impl ParseError {
    /// The place, in bytes from the beginning.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON: {} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for ParseError {}

/// Reads one value, with white space around it and nothing else. Bytes that are no UTF-8
/// and escapes of half a surrogate pair become U+FFFD.
pub fn parse(text: impl AsRef<[u8]>) -> Result<Value, ParseError> {
    let text: Cow<'_, str> = String::from_utf8_lossy(text.as_ref());
    let mut parser = Parser { text: &text, at: 0 };
    let value = parser.value(0)?;
    parser.space();
    if parser.at < text.len() {
        return Err(parser.error("something follows the value"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn error(&self, reason: &'static str) -> ParseError {
        ParseError {
            offset: self.at,
            reason,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Boolean(true)),
            Some(b'f') => self.word("false", Value::Boolean(false)),
            Some(_) => Err(self.error("no value begins like this")),
            None => Err(self.error("it ends before a value")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("no value begins like this"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn enter(&mut self, depth: usize) -> Result<(), ParseError> {
        if depth >= MAX_DEPTH {
            return Err(self.error("nested too deep"));
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.enter(depth)?;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return Err(self.error("an array goes on with , or ]"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.enter(depth)?;
        let mut members = Vec::new();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.error("a member begins with its name"));
            }
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.error("a : follows a member's name"));
            }
            members.push((name, self.value(depth + 1)?));
            self.space();
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.take(b',') {
                return Err(self.error("an object goes on with , or }"));
            }
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        self.at += 1;
        let mut s = String::new();
        let mut plain = self.at;
        loop {
            match self.peek() {
                None => return Err(self.error("a string does not end")),
                Some(b'"') => {
                    s.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    return Ok(s);
                }
                Some(b'\\') => {
                    s.push_str(&self.text[plain..self.at]);
                    s.push(self.escape()?);
                    plain = self.at;
                }
                Some(0..=0x1f) => return Err(self.error("a control character in a string")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        self.at += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => c as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("no escape is like this")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let first = self.code_unit()?;
        if let 0xD800..=0xDBFF = first {
            let before = self.at;
            if self.text[self.at..].starts_with("\\u") {
                self.at += 1;
                if let second @ 0xDC00..=0xDFFF = self.code_unit()? {
                    let c = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                    return Ok(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                // It is read again, for itself.
                self.at = before;
            }
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Reads `u` and four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, ParseError> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|c| (c as char).to_digit(16));
            match digit {
                Some(digit) => unit = unit << 4 | digit,
                None => return Err(self.error("\\u takes four hexadecimal digits")),
            }
            self.at += 1;
        }
        Ok(unit)
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.error("a digit is missing"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let begin = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let written = &self.text[begin..self.at];
        if integer {
            if let Ok(n) = written.parse() {
                return Ok(Value::Integer(n));
            }
        }
        match written.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Value::Number(n)),
            _ => {
                self.at = begin;
                Err(self.error("a number out of range"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_should() {
        for (text, want) in [
            ("null", Value::Null),
            (" true\n", Value::Boolean(true)),
            ("false", Value::Boolean(false)),
            ("0", Value::Integer(0)),
            ("-12", Value::Integer(-12)),
            ("9223372036854775807", Value::Integer(i64::MAX)),
            ("9223372036854775808", Value::Number(9223372036854775808.0)),
            ("1.5", Value::Number(1.5)),
            ("-0.25e2", Value::Number(-25.0)),
            ("1E+2", Value::Number(100.0)),
            ("1e-400", Value::Number(0.0)),
            (r#""""#, "".into()),
            (r#""a\"\\\/\b\f\n\r\tz""#, "a\"\\/\u{8}\u{c}\n\r\tz".into()),
            (r#""\u00e9\u20AC""#, "é€".into()),
            (r#""\ud83d\ude00!""#, "😀!".into()),
            (r#""\ud83d""#, "\u{fffd}".into()),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}".into()),
            (r#""\ud83dx""#, "\u{fffd}x".into()),
            (r#""\ud83d\n""#, "\u{fffd}\n".into()),
            (r#""\ud83d\u0041""#, "\u{fffd}A".into()),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀".into()),
            (r#""\u0000""#, "\0".into()),
            ("\"größe 😀\"", "größe 😀".into()),
            ("[]", Value::Array(vec![])),
            (
                "[1, [\"a\"] ]",
                Value::Array(vec![1.into(), vec!["a"].into()]),
            ),
            ("{ }", Value::Object(vec![])),
            (r#"{"a" : {"b":null} , "c":1}"#, {
                let inner = Value::object([("b", Value::Null)]);
                Value::object([("a", inner), ("c", 1.into())])
            }),
        ] {
            assert_eq!(parse(text), Ok(want), "{}", text);
        }
        assert_eq!(parse(b"\"a\xffb\""), Ok("a\u{fffd}b".into()));
    }

    #[test]
    fn refuses_what_is_none() {
        for (text, at) in [
            ("", 0),
            ("  ", 2),
            ("nul", 0),
            ("NaN", 0),
            ("01", 1),
            ("-", 1),
            ("+1", 0),
            (".5", 0),
            ("1.", 2),
            ("1e", 2),
            ("1e999", 0),
            ("\"a", 2),
            ("\"a\n\"", 2),
            (r#""\x""#, 2),
            (r#""\u12"#, 5),
            (r#""\u12g4""#, 5),
            (r#""\ud83d\u""#, 9),
            (r#""\"#, 2),
            ("[1", 2),
            ("[1,]", 3),
            ("[1 2]", 3),
            ("{1:2}", 1),
            (r#"{"a"}"#, 4),
            (r#"{"a":}"#, 5),
            (r#"{"a":1,}"#, 7),
            (r#"{"a":1"#, 6),
            ("1 2", 2),
            ("// 1", 0),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.offset(), at, "{}: {}", text, error);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(nested(MAX_DEPTH)).is_ok());
        assert_eq!(
            parse(nested(MAX_DEPTH + 1)).unwrap_err().offset(),
            MAX_DEPTH
        );
        assert!(parse("[".repeat(1 << 20)).is_err());
        assert!(parse("{\"a\":".repeat(1 << 20)).is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        let value = Value::object([
            ("text", all.into()),
            ("n\"", Value::Null),
            (
                "list",
                vec![Value::from(true), (-7).into(), 0.1.into(), 1e300.into()].into(),
            ),
            ("empty", Value::Object(vec![])),
        ]);
        let text = value.to_string();
        assert!(!text.bytes().any(|b| b < 0x20), "{}", text);
        assert_eq!(parse(&text), Ok(value));
        assert_eq!(Value::Number(f64::NAN).to_string(), "null");
        // An integer stays apart from a number.
        assert_eq!(Value::Number(3.0).to_string(), "3.0");
    }

    /// What is read shows as a text that reads the same, whatever was read.
    #[test]
    fn damaged_texts_are_read_or_refused() {
        let whole =
            r#"{"a":[1,-2.5e3,true,null,"\ud83d\ude00\n\ud83d"],"é":{"":[[],{}]}}"#.as_bytes();
        let pieces = br#"{}[],:"\ud0-.eE+ntf1 "#;
        let mut state: u64 = 1;
        let mut random = |below: usize| {
            // Knuth's MMIX generator: the same texts each time.
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let mut read = 0;
        for _ in 0..200_000 {
            let mut text = whole.to_vec();
            for _ in 0..1 + random(4) {
                let (at, length) = (random(text.len()), random(3));
                let end = (at + length).min(text.len());
                text.splice(at..end, [pieces[random(pieces.len())]]);
            }
            if let Ok(value) = parse(&text) {
                assert_eq!(parse(value.to_string()), Ok(value));
                read += 1;
            }
        }
        assert!(read > 1000, "{}", read);
    }

    #[test]
    fn requests_are_of_one_line() {
        let pairs = [
            ("a".to_owned(), "1\n".to_owned()),
            ("b\"".to_owned(), "".to_owned()),
        ];
        let text = ObjectWriter::new()
            .string("s\u{1}", "\\é")
            .integer("n", -5)
            .pairs("none", &[])
            .pairs("p", &pairs)
            .finish();
        let want = r#"{"s\u0001":"\\é","n":-5,"none":[],"p":[["a","1\n"],["b\"",""]]}"#;
        assert_eq!(String::from_utf8(text).unwrap(), want);
        assert_eq!(ObjectWriter::new().finish(), b"{}");
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        let value = parse(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(value.get("a").and_then(Value::as_i64), Some(2));
        assert_eq!(value.get("b"), None);
        assert_eq!(Value::Null.get("a"), None);
    }
}
