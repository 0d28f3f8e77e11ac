use std::fmt;

use crate::abi::Kind;

/// Why a call of the host failed: its kind, and what was being done.
///
/// It shows as `read docs/notes.md: not found`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    doing: String,
}

impl Error {
    /// Makes an error: `doing` is the operation and the thing, such as `read a.txt`.
    pub fn new(kind: Kind, doing: impl Into<String>) -> Error {
        Error {
            kind,
            doing: doing.into(),
        }
    }

    /// The kind, which is what to branch on.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kind)
    }
}

/// The kind in words: its name with spaces.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, word) in self.name().split('_').enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            f.write_str(word)?;
        }
        Ok(())
    }
}

impl std::error::Error for Kind {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_and_why() {
        let error = Error::new(Kind::NotFound, "read docs/a.txt");
        assert_eq!(error.to_string(), "read docs/a.txt: not found");
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn codes_and_kinds_agree() {
        for kind in Kind::ALL {
            assert!(kind.code() < 0);
            assert_eq!(Kind::of_code(kind.code()), kind);
        }
        assert_eq!(Kind::of_code(-1000), Kind::Unavailable);
    }
}
