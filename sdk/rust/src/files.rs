//! Reads the directories that the operator granted to a hand. Using it makes the module
//! ask for the capability `files`; the manifest must ask for it too.
//!
//! ```no_run
//! # fn main() -> Result<(), glovebox_hand::Error> {
//! use glovebox_hand::files;
//!
//! let exports = files::root("exports");
//! for entry in exports.list("2026")? {
//!     let entry = entry?;
//!     if entry.name.ends_with(".json") {
//!         let text = exports.read(&format!("2026/{}", entry.name), 1 << 20)?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Paths are relative to the root and separated by `/`; `""` is the root itself. Each page
//! of 1,000 entries and each piece of 512 KiB is a call of the host, of which a query has
//! 10,000: look at the times in a listing before you read what cannot matter.

use crate::abi::{Kind, MAX_PAGE_ENTRIES};
use crate::error::Error;
use crate::guest;
use crate::json::{self, ObjectWriter, Value};
use crate::time::Timestamp;

/// What one call reads. The host's limit is 1 MiB unless the operator changed it; where
/// it is lower, pieces become smaller, down to the other bound.
const PIECE_BYTES: usize = 512 << 10;
const LEAST_PIECE_BYTES: usize = 4 << 10;

/// Names a directory that was granted. It never fails: what is done in a root that was not
/// granted fails with `Kind::NotGranted`.
pub fn root(name: impl Into<String>) -> Root {
    Root { name: name.into() }
}

/// A directory that the operator granted, read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    name: String,
}

/// What there is under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The last element of the path.
    pub name: String,
    /// What it is, after following links inside the root.
    pub kind: EntryKind,
    /// The size in bytes; 0 for what is not a file.
    pub size: u64,
    /// The time of the last change.
    pub modified: Timestamp,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file, which can be read.
    File,
    /// A directory, which can be listed.
    Directory,
    /// Anything else.
    Other,
}

impl EntryKind {
    /// The name of the kind in the contract: `file`, `dir` or `other`.
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::File => "file",
            EntryKind::Directory => "dir",
            EntryKind::Other => "other",
        }
    }
}

impl Root {
    /// Describes one path.
    pub fn stat(&self, path: &str) -> Result<Entry, Error> {
        Ok(self.page("stat", path, "", 1)?.about)
    }

    /// Lists a directory in the byte order of the names, a page at a time. Of what is not
    /// a directory it tells `about`, and has no entries.
    pub fn list(&self, path: &str) -> Result<Listing, Error> {
        let page = self.page("list", path, "", MAX_PAGE_ENTRIES)?;
        Ok(Listing {
            root: self.clone(),
            path: path.to_owned(),
            about: page.about,
            entries: page.entries.into_iter(),
            after: page.more,
        })
    }

    /// Reads a whole file of at most `limit` bytes; a longer one is `Kind::TooLarge`. The
    /// hand has 64 MiB of memory unless the operator changed it.
    pub fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Error> {
        let mut whole = Vec::new();
        for piece in self.pieces(path) {
            let piece = piece?;
            if piece.len() > limit - whole.len() {
                return Err(self.error(Kind::TooLarge, "read", path));
            }
            if whole.is_empty() {
                whole = piece; // Most files are of one piece.
            } else {
                whole.extend_from_slice(&piece);
            }
        }
        Ok(whole)
    }

    /// Reads a file from its beginning to its end, a piece at a time. An error ends it.
    pub fn pieces(&self, path: &str) -> Pieces {
        Pieces {
            root: self.clone(),
            path: path.to_owned(),
            offset: 0,
            length: PIECE_BYTES,
            ended: false,
        }
    }

    /// Reads at most `length` bytes from `offset` on; fewer, or none, at the end of the
    /// file. The host bounds `length`, to 1 MiB unless the operator changed it.
    pub fn read_at(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let request = ObjectWriter::new()
            .string("root", &self.name)
            .string("path", path)
            .integer("offset", i64::try_from(offset).unwrap_or(i64::MAX))
            .integer("length", i64::try_from(length).unwrap_or(i64::MAX));
        guest::files_read(&request.finish()).map_err(|kind| self.error(kind, "read", path))
    }

    fn page(&self, doing: &str, path: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let request = ObjectWriter::new()
            .string("root", &self.name)
            .string("path", path)
            .string("after", after)
            .integer("limit", limit as i64);
        guest::files_list(&request.finish())
            .and_then(|text| page_of(&text).ok_or(Kind::Unavailable))
            .map_err(|kind| self.error(kind, doing, path))
    }

    fn error(&self, kind: Kind, doing: &str, path: &str) -> Error {
        Error::new(kind, format!("{} {}/{}", doing, self.name, path))
    }
}

struct Page {
    about: Entry,
    entries: Vec<Entry>,
    /// The name to go on after, if more entries follow.
    more: Option<String>,
}

fn page_of(text: &[u8]) -> Option<Page> {
    let value = json::parse(text).ok()?;
    let entries = match value.get("entries")? {
        Value::Null => Vec::new(),
        list => list
            .as_array()?
            .iter()
            .map(entry_of)
            .collect::<Option<Vec<Entry>>>()?,
    };
    let more = value.get("more")?.as_bool()?;
    Some(Page {
        about: entry_of(value.get("self")?)?,
        more: entries.last().filter(|_| more).map(|e| e.name.clone()),
        entries,
    })
}

fn entry_of(value: &Value) -> Option<Entry> {
    Some(Entry {
        name: value.get("name")?.as_str()?.to_owned(),
        kind: match value.get("type")?.as_str()? {
            "file" => EntryKind::File,
            "dir" => EntryKind::Directory,
            _ => EntryKind::Other,
        },
        size: u64::try_from(value.get("size")?.as_i64()?).ok()?,
        modified: value.get("mtime")?.as_str()?.parse().ok()?,
    })
}

/// The entries of a directory, all pages of them. An error ends it.
#[derive(Debug)]
pub struct Listing {
    root: Root,
    path: String,
    about: Entry,
    entries: std::vec::IntoIter<Entry>,
    /// The last name of a page that more entries follow.
    after: Option<String>,
}

impl Listing {
    /// Describes the path that was listed.
    pub fn about(&self) -> &Entry {
        &self.about
    }
}

impl Iterator for Listing {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.entries.next() {
            return Some(Ok(entry));
        }
        let after = self.after.take()?;
        match self.root.page("list", &self.path, &after, MAX_PAGE_ENTRIES) {
            Ok(page) => {
                self.entries = page.entries.into_iter();
                self.after = page.more;
                self.entries.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// The pieces of a file in order, none of them empty.
#[derive(Debug)]
pub struct Pieces {
    root: Root,
    path: String,
    offset: u64,
    length: usize,
    ended: bool,
}

impl Iterator for Pieces {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.root.read_at(&self.path, self.offset, self.length) {
                Ok(piece) => {
                    self.offset += piece.len() as u64;
                    self.ended = piece.len() < self.length;
                    if !piece.is_empty() {
                        return Some(Ok(piece));
                    }
                }
                Err(error) if error.kind() == Kind::TooLarge && self.length > LEAST_PIECE_BYTES => {
                    self.length /= 2;
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn lists_all_pages() {
        let mut world = World::new().file("docs", "z/deep/er.txt", "x");
        let count = 2 * MAX_PAGE_ENTRIES + 1;
        for i in 0..count {
            world = world.file("docs", &format!("z/{:05}.txt", i), "four");
        }
        world.run(|| {
            let docs = root("docs");
            let listing = docs.list("z").unwrap();
            assert_eq!(listing.about().kind, EntryKind::Directory);
            let entries: Vec<Entry> = listing.collect::<Result<_, _>>().unwrap();
            assert_eq!(entries.len(), count + 1);
            assert!(entries.windows(2).all(|two| two[0].name < two[1].name));
            assert_eq!(
                (entries[7].name.as_str(), entries[7].size),
                ("00007.txt", 4)
            );
            assert_eq!(entries[7].modified.to_string(), "2026-03-23T09:00:00Z");
            assert_eq!(entries[count].kind, EntryKind::Directory);

            let of_file = docs.list("z/00007.txt").unwrap();
            assert_eq!(of_file.about(), &entries[7]);
            assert_eq!(of_file.count(), 0);
            assert_eq!(docs.stat("").unwrap().name, ".");
        });
    }

    #[test]
    fn reads_piece_by_piece() {
        let long: Vec<u8> = (0..2 * PIECE_BYTES + 5).map(|i| (i % 251) as u8).collect();
        let exact = vec![7; PIECE_BYTES];
        let mut world = World::new()
            .file("docs", "long", long.clone())
            .file("docs", "exact", exact.clone())
            .file("docs", "empty", "");
        world.run(|| {
            let docs = root("docs");
            assert_eq!(docs.read("long", long.len()).unwrap(), long);
            let error = docs.read("long", long.len() - 1).unwrap_err();
            assert_eq!(error, Error::new(Kind::TooLarge, "read docs/long"));
            assert_eq!(docs.read("exact", usize::MAX).unwrap(), exact);
            assert_eq!(docs.read("empty", 0).unwrap(), b"");
            assert_eq!(docs.pieces("long").count(), 3);
            assert_eq!(docs.pieces("empty").count(), 0);
            assert_eq!(docs.read_at("long", 3, 2).unwrap(), [3, 4]);
        });
    }

    /// Where the operator lowered what one read may have.
    #[test]
    fn pieces_become_smaller() {
        let long: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
        let mut world = World::new().file("docs", "long", long.clone());
        world.longest_read(10_000).run(|| {
            assert_eq!(root("docs").read("long", 1 << 20).unwrap(), long);
        });
        world.longest_read(1_000).run(|| {
            let mut pieces = root("docs").pieces("long");
            assert_eq!(pieces.next().unwrap().unwrap_err().kind(), Kind::TooLarge);
            assert!(pieces.next().is_none());
        });
    }

    #[test]
    fn says_what_was_refused() {
        let docs = root("docs");
        assert_eq!(docs.stat("a").unwrap_err().kind(), Kind::Disabled);
        World::new().file("docs", "a", "x").run(|| {
            for (error, want) in [
                (docs.stat("b").unwrap_err(), "stat docs/b: not found"),
                (docs.list("../a").unwrap_err(), "list docs/../a: denied"),
                (docs.read("a/b", 9).unwrap_err(), "read docs/a/b: not found"),
                (docs.read("", 9).unwrap_err(), "read docs/: denied"),
                (root("x").read("a", 9).unwrap_err(), "read x/a: not granted"),
            ] {
                assert_eq!(error.to_string(), want);
            }
        });
    }

    #[test]
    fn a_page_that_is_none_is_no_page() {
        let page = r#"{"self":{"name":".","type":"dir","size":0,"mtime":"2026-03-23T09:00:00Z"},"entries":null,"more":true}"#;
        let read = page_of(page.as_bytes()).unwrap();
        assert!(read.entries.is_empty() && read.more.is_none());
        let entry = r#"[{"name":"a","type":"link","size":0,"mtime":"2026-03-23T09:00:00Z"}]"#;
        let of_one = page.replace("null", entry);
        let more = page_of(of_one.as_bytes()).unwrap();
        assert_eq!(more.entries[0].kind, EntryKind::Other);
        assert_eq!(more.more.as_deref(), Some("a"));
        let last = page_of(of_one.replace("true", "false").as_bytes()).unwrap();
        assert!(last.more.is_none());
        for (from, to) in [
            ("null", "7"),
            ("true", "1"),
            ("0,", "-1,"),
            ("Z", ""),
            ("{", ""),
        ] {
            assert!(
                page_of(page.replacen(from, to, 1).as_bytes()).is_none(),
                "{}",
                to
            );
        }
    }
}
