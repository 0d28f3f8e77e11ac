//! Keeps values from one query to the next: those of this hand for the user whom it is
//! asked for, whom nobody else can read. Using it makes the module ask for the capability
//! `kv`; the manifest must ask for it too.
//!
//! ```no_run
//! # fn main() -> Result<(), glovebox_hand::Error> {
//! use glovebox_hand::kv;
//!
//! let seen = kv::get("seen")?.unwrap_or_default();
//! kv::set("seen", "42")?;
//! for key in kv::keys("feed/") {
//!     kv::delete(&key?)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Keys are 1 to 512 bytes. The operator limits the size of one value and that of all keys
//! and values together, by default to 1 MiB and 16 MiB. The kinds of errors are
//! `BadRequest` for a key that is none, `TooLarge` for a value over its limit,
//! `QuotaExceeded` when all together are over theirs, `TooManyCalls`, `NotGranted`,
//! `Timeout` and `Unavailable`; `Disabled` outside a hand.

use crate::abi::{Kind, MAX_KEY_BYTES, MAX_PAGE_ENTRIES};
use crate::error::Error;
use crate::guest;
use crate::json::{self, ObjectWriter, Value};

/// The value of a key; `None` if it has none.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, Error> {
    match check(key).and_then(|()| guest::kv_get(&request(key))) {
        Ok(value) => Ok(Some(value)),
        Err(Kind::NotFound) => Ok(None),
        Err(kind) => Err(error(kind, "get", key)),
    }
}

/// Stores a value, which may be empty. It is on the operator's disk when `set` returns, and
/// replaces an earlier one as a whole or not at all. Each call waits for that disk: one
/// value that holds many things is quicker than many.
pub fn set(key: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
    let store = || {
        check(key)?;
        let mut request = request(key);
        request.push(b'\n');
        request.extend_from_slice(value.as_ref());
        guest::kv_set(&request)
    };
    match store() {
        Ok(_) => Ok(()),
        Err(kind) => Err(error(kind, "set", key)),
    }
}

/// Removes a value. That there is none is not an error.
pub fn delete(key: &str) -> Result<(), Error> {
    match check(key).and_then(|()| guest::kv_delete(&request(key))) {
        Ok(_) => Ok(()),
        Err(kind) => Err(error(kind, "delete", key)),
    }
}

/// The keys that begin with `prefix`, in the order of their bytes, a page at a time. Values
/// may be set and deleted meanwhile. An error ends it.
pub fn keys(prefix: impl Into<String>) -> Keys {
    Keys {
        prefix: prefix.into(),
        page: Vec::new().into_iter(),
        after: Some(String::new()),
    }
}

/// Keys, as `keys` gives them.
#[derive(Debug)]
pub struct Keys {
    prefix: String,
    page: std::vec::IntoIter<String>,
    /// The key after which the next page begins; `None` if there is none.
    after: Option<String>,
}

impl Iterator for Keys {
    type Item = Result<String, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(key) = self.page.next() {
            return Some(Ok(key));
        }
        let after = self.after.take()?;
        match page(&self.prefix, &after) {
            Ok((keys, more)) => {
                self.after = keys.last().filter(|_| more).cloned();
                self.page = keys.into_iter();
                self.page.next().map(Ok)
            }
            Err(kind) => Some(Err(error(kind, "list", &self.prefix))),
        }
    }
}

fn page(prefix: &str, after: &str) -> Result<(Vec<String>, bool), Kind> {
    let request = ObjectWriter::new()
        .string("prefix", prefix)
        .string("after", after)
        .integer("limit", MAX_PAGE_ENTRIES as i64);
    let result = guest::kv_list(&request.finish())?;
    page_of(&result).ok_or(Kind::Unavailable)
}

fn page_of(text: &[u8]) -> Option<(Vec<String>, bool)> {
    let value = json::parse(text).ok()?;
    let keys = match value.get("keys")? {
        Value::Null => Vec::new(),
        list => {
            let keys = list
                .as_array()?
                .iter()
                .map(|k| k.as_str().map(str::to_owned));
            keys.collect::<Option<Vec<String>>>()?
        }
    };
    Some((keys, value.get("more")?.as_bool()?))
}

fn request(key: &str) -> Vec<u8> {
    ObjectWriter::new().string("key", key).finish()
}

fn check(key: &str) -> Result<(), Kind> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Kind::BadRequest);
    }
    Ok(())
}

fn error(kind: Kind, doing: &str, key: &str) -> Error {
    let shown: String = key.chars().take(MAX_KEY_BYTES).collect();
    Error::new(kind, format!("kv {} {}", doing, shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn keeps_values() {
        let mut world = World::new().values([("a", "1")]);
        world.run(|| {
            assert_eq!(get("a").unwrap(), Some(b"1".to_vec()));
            assert_eq!(get("b").unwrap(), None);
            set("b\n\"é", b"two\n\xff").unwrap();
            assert_eq!(get("b\n\"é").unwrap(), Some(b"two\n\xff".to_vec()));
            set("a", "").unwrap();
            assert_eq!(get("a").unwrap(), Some(Vec::new()));
            delete("a").unwrap();
            delete("a").unwrap();
            assert_eq!(get("a").unwrap(), None);
        });
        assert_eq!(world.value("b\n\"é"), Some(&b"two\n\xff"[..]));
    }

    #[test]
    fn lists_all_pages() {
        let count = 2 * MAX_PAGE_ENTRIES;
        World::new().values([("other", "")]).run(|| {
            for i in (0..count).rev() {
                set(&format!("n/{:05}", i), "").unwrap();
            }
            let all: Vec<String> = keys("n/").collect::<Result<_, _>>().unwrap();
            assert_eq!(all.len(), count);
            assert!(all.windows(2).all(|two| two[0] < two[1]));
            assert_eq!(keys("").count(), count + 1);
            assert_eq!(keys("x").count(), 0);
        });
    }

    #[test]
    fn refuses_keys_that_are_none() {
        World::new().values([]).run(|| {
            let long = "k".repeat(MAX_KEY_BYTES + 1);
            for key in ["", &long] {
                assert_eq!(get(key).unwrap_err().kind(), Kind::BadRequest);
                assert_eq!(set(key, "").unwrap_err().kind(), Kind::BadRequest);
                assert_eq!(delete(key).unwrap_err().kind(), Kind::BadRequest);
            }
            set(&long[1..], "").unwrap();
        });
        assert_eq!(get("a").unwrap_err().to_string(), "kv get a: disabled");
        let mut refused = keys("a");
        assert_eq!(refused.next().unwrap().unwrap_err().kind(), Kind::Disabled);
        assert!(refused.next().is_none());
    }
}
