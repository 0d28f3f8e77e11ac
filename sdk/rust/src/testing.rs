//! A host for native tests: what a hand reaches while a test calls it.
//!
//! ```
//! use glovebox_hand::{files, kv, testing::World, Kind};
//!
//! let mut world = World::new()
//!     .file("docs", "2026/march.txt", "It snowed.")
//!     .values([("seen", "1")]);
//! world.run(|| {
//!     assert_eq!(files::root("docs").read("2026/march.txt", 100).unwrap(), b"It snowed.");
//!     kv::set("seen", "2").unwrap();
//!     // What the test does not give was not granted.
//!     let refused = files::root("mail").stat("").unwrap_err();
//!     assert_eq!(refused.kind(), Kind::NotGranted);
//! });
//! assert_eq!(world.value("seen"), Some(&b"2"[..]));
//! ```
//!
//! Outside of `World::run` every capability is `Kind::Disabled`. A world keeps to the rules
//! of the contract, and requests and results pass through it as the bytes that a real host
//! would see. It does not have the limits of one.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::abi::{Kind, Level, MAX_KEY_BYTES, MAX_PAGE_ENTRIES};
use crate::http;
use crate::json::{self, Value};
use crate::llm;
use crate::time::Timestamp;

/// What a hand reaches in a test. Only the thread that calls `run` is in it.
#[derive(Default)]
pub struct World {
    roots: BTreeMap<String, BTreeMap<String, File>>,
    values: Option<BTreeMap<String, Vec<u8>>>,
    fetcher: Option<Box<Fetcher>>,
    model: Option<Box<Model>>,
    log: Vec<(Level, String)>,
    longest_read: Option<usize>,
}

type Fetcher = dyn FnMut(&http::Request) -> Result<http::Response, Kind>;
type Model = dyn FnMut(&llm::Request) -> Result<llm::Response, Kind>;

struct File {
    content: Vec<u8>,
    modified: Timestamp,
}

impl World {
    /// A world in which nothing is granted.
    pub fn new() -> World {
        World::default()
    }

    /// Grants a root, and puts a file of 2026-03-23 at 09:00 in UTC into it; the directories
    /// above it are there then.
    #[must_use]
    pub fn file(self, root: &str, path: &str, content: impl Into<Vec<u8>>) -> World {
        self.file_of(root, path, content, Timestamp::from_unix(1_774_256_400))
    }

    /// The same with a time of change of its own.
    #[must_use]
    pub fn file_of(
        mut self,
        root: &str,
        path: &str,
        content: impl Into<Vec<u8>>,
        modified: Timestamp,
    ) -> World {
        let content = content.into();
        let files = self.roots.entry(root.to_owned()).or_default();
        files.insert(path.to_owned(), File { content, modified });
        self
    }

    /// Grants `kv`, with these values.
    #[must_use]
    pub fn values<const N: usize>(mut self, values: [(&str, &str); N]) -> World {
        let kept = values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        self.values = Some(BTreeMap::from(kept));
        self
    }

    /// Grants `http`: requests are answered by `fetcher`.
    #[must_use]
    pub fn fetcher(
        mut self,
        fetcher: impl FnMut(&http::Request) -> Result<http::Response, Kind> + 'static,
    ) -> World {
        self.fetcher = Some(Box::new(fetcher));
        self
    }

    /// Grants `llm`: prompts are answered by `model`.
    #[must_use]
    pub fn model(
        mut self,
        model: impl FnMut(&llm::Request) -> Result<llm::Response, Kind> + 'static,
    ) -> World {
        self.model = Some(Box::new(model));
        self
    }

    /// Bounds what one read may ask for, as an operator can; by default nothing does.
    pub fn longest_read(&mut self, bytes: usize) -> &mut World {
        self.longest_read = Some(bytes);
        self
    }

    /// Calls `f` in this world. Values that it sets and lines that it logs stay in the world
    /// for the next call.
    pub fn run<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let entered = Entered {
            outside: CURRENT.with(|c| c.replace(Some(std::mem::take(self)))),
            world: self,
        };
        let result = f();
        drop(entered);
        result
    }

    /// What the hand logged.
    pub fn log(&self) -> &[(Level, String)] {
        &self.log
    }

    /// The value that is kept under a key.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.as_ref()?.get(key).map(Vec::as_slice)
    }

    fn call(&mut self, call: Call, request: &[u8]) -> Result<Vec<u8>, Kind> {
        let (head, body) = match call {
            Call::HttpFetch | Call::KvSet => match request.iter().position(|b| *b == b'\n') {
                Some(line) => (&request[..line], &request[line + 1..]),
                None => (request, &[][..]),
            },
            _ => (request, &[][..]),
        };
        let head = json::parse(head).map_err(|_| Kind::BadRequest)?;
        let text = |name| {
            head.get(name)
                .and_then(Value::as_str)
                .ok_or(Kind::BadRequest)
        };
        let count = |name| {
            let n = head
                .get(name)
                .and_then(Value::as_i64)
                .ok_or(Kind::BadRequest)?;
            usize::try_from(n).map_err(|_| Kind::BadRequest)
        };
        let limit = || match count("limit")? {
            0 => Ok(MAX_PAGE_ENTRIES),
            n if n <= MAX_PAGE_ENTRIES => Ok(n),
            _ => Err(Kind::BadRequest),
        };
        match call {
            Call::FilesList => {
                let files = self.roots.get(text("root")?).ok_or(Kind::NotGranted)?;
                list(files, path(text("path")?)?, text("after")?, limit()?)
            }
            Call::FilesRead => {
                let files = self.roots.get(text("root")?).ok_or(Kind::NotGranted)?;
                let path = path(text("path")?)?;
                let content = match files.get(path) {
                    Some(file) => &file.content,
                    None if is_directory(files, path) => return Err(Kind::Denied),
                    None => return Err(Kind::NotFound),
                };
                let length = count("length")?;
                if self.longest_read.map_or(false, |most| length > most) {
                    return Err(Kind::TooLarge);
                }
                let begin = count("offset")?.min(content.len());
                let end = begin.saturating_add(length).min(content.len());
                Ok(content[begin..end].to_vec())
            }
            Call::HttpFetch => {
                let fetcher = self.fetcher.as_mut().ok_or(Kind::NotGranted)?;
                let mut request = http::Request::new(text("method")?, text("url")?);
                for field in head.get("header").and_then(Value::as_array).unwrap_or(&[]) {
                    match field.as_array() {
                        Some([Value::String(name), Value::String(value)]) => {
                            request.headers.push((name.clone(), value.clone()));
                        }
                        _ => return Err(Kind::BadRequest),
                    }
                }
                request.body = body.to_vec();
                let millis = count("timeout_ms")? as u64;
                request.timeout = Some(millis)
                    .filter(|ms| *ms > 0)
                    .map(std::time::Duration::from_millis);
                Ok(fetched(fetcher(&request)?, &request.url))
            }
            Call::KvGet => {
                let key = key(text("key")?)?;
                self.kept()?.get(key).cloned().ok_or(Kind::NotFound)
            }
            Call::KvSet => {
                let key = key(text("key")?)?.to_owned();
                self.kept()?.insert(key, body.to_vec());
                Ok(Vec::new())
            }
            Call::KvDelete => {
                let key = key(text("key")?)?;
                self.kept()?.remove(key);
                Ok(Vec::new())
            }
            Call::KvList => {
                let (prefix, after, limit) = (text("prefix")?, text("after")?, limit()?);
                let names = self.kept()?.keys();
                let fits = |k: &&String| k.starts_with(prefix) && k.as_str() > after;
                let mut keys: Vec<&str> = names.filter(fits).map(String::as_str).collect();
                let more = keys.len() > limit;
                keys.truncate(limit);
                let page = Value::object([("keys", keys.into()), ("more", more.into())]);
                Ok(page.to_string().into_bytes())
            }
            Call::LlmComplete => {
                let model = self.model.as_mut().ok_or(Kind::NotGranted)?;
                let tokens = count("max_output_tokens")?;
                let answer = model(
                    &llm::prompt(text("prompt")?)
                        .system(text("system")?)
                        .max_output_tokens(u32::try_from(tokens).unwrap_or(u32::MAX)),
                )?;
                let result = Value::object([
                    ("text", answer.text.into()),
                    ("input_tokens", (answer.input_tokens as i64).into()),
                    ("output_tokens", (answer.output_tokens as i64).into()),
                ]);
                Ok(result.to_string().into_bytes())
            }
        }
    }

    fn kept(&mut self) -> Result<&mut BTreeMap<String, Vec<u8>>, Kind> {
        self.values.as_mut().ok_or(Kind::NotGranted)
    }
}

/// Takes a path as the contract has it; the root is `""`.
fn path(path: &str) -> Result<&str, Kind> {
    let wrong = |element: &str| matches!(element, "" | "." | "..");
    match path {
        "" | "." => Ok(""),
        _ if path.contains(['\0', '\\']) || path.split('/').any(wrong) => Err(Kind::Denied),
        _ => Ok(path),
    }
}

fn key(key: &str) -> Result<&str, Kind> {
    match key.len() {
        1..=MAX_KEY_BYTES => Ok(key),
        _ => Err(Kind::BadRequest),
    }
}

fn is_directory(files: &BTreeMap<String, File>, path: &str) -> bool {
    path.is_empty() || files.keys().any(|f| below(f, path).is_some())
}

/// What is left of `file` below the directory `path`.
fn below<'a>(file: &'a str, path: &str) -> Option<&'a str> {
    match path {
        "" => Some(file),
        _ => file.strip_prefix(path)?.strip_prefix('/'),
    }
}

fn list(
    files: &BTreeMap<String, File>,
    path: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<u8>, Kind> {
    let name = path
        .rsplit('/')
        .next()
        .filter(|n| !n.is_empty())
        .unwrap_or(".");
    let mut entries = BTreeMap::new();
    let about = match files.get(path) {
        Some(file) => of_file(name, file),
        None if !is_directory(files, path) => return Err(Kind::NotFound),
        None => {
            for (file, content) in files {
                match below(file, path).map(|rest| rest.split_once('/').ok_or(rest)) {
                    Some(Ok((directory, _))) => {
                        entries.insert(directory, of_directory(directory, content.modified));
                    }
                    Some(Err(name)) => {
                        entries.insert(name, of_file(name, content));
                    }
                    None => {}
                }
            }
            let newest = files.values().map(|f| f.modified).max();
            of_directory(name, newest.unwrap_or_else(|| Timestamp::from_unix(0)))
        }
    };
    let mut page: Vec<Value> = (entries.into_iter())
        .filter(|(name, _)| *name > after)
        .map(|(_, entry)| entry)
        .collect();
    let more = page.len() > limit;
    page.truncate(limit);
    let result = Value::object([
        ("self", about),
        ("entries", Value::Array(page)),
        ("more", more.into()),
    ]);
    Ok(result.to_string().into_bytes())
}

fn of_file(name: &str, file: &File) -> Value {
    Value::object([
        ("name", name.into()),
        ("type", "file".into()),
        ("size", (file.content.len() as i64).into()),
        ("mtime", file.modified.to_string().into()),
    ])
}

fn of_directory(name: &str, modified: Timestamp) -> Value {
    Value::object([
        ("name", name.into()),
        ("type", "dir".into()),
        ("size", 0.into()),
        ("mtime", modified.to_string().into()),
    ])
}

fn fetched(response: http::Response, asked: &str) -> Vec<u8> {
    let url = if response.url.is_empty() {
        asked
    } else {
        &response.url
    };
    let headers = response.headers.iter();
    let head = Value::object([
        ("status", i64::from(response.status).into()),
        ("url", url.into()),
        (
            "header",
            Value::Array(headers.map(|h| vec![h.0.as_str(), &h.1].into()).collect()),
        ),
        ("truncated", response.truncated.into()),
    ]);
    let mut result = head.to_string().into_bytes();
    result.push(b'\n');
    result.extend_from_slice(&response.body);
    result
}

/// A function of the host.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    FilesList,
    FilesRead,
    HttpFetch,
    KvGet,
    KvSet,
    KvDelete,
    KvList,
    LlmComplete,
}

thread_local! {
    static CURRENT: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Puts a world back where it came from, also when the hand panics.
struct Entered<'a> {
    world: &'a mut World,
    outside: Option<World>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let inside = CURRENT.with(|c| c.replace(self.outside.take()));
        *self.world = inside.unwrap_or_default();
    }
}

pub(crate) fn call(call: Call, request: &[u8]) -> Result<Vec<u8>, Kind> {
    // A fetcher or a model that calls back finds no world, not a locked one.
    let mut world = CURRENT.with(RefCell::take).ok_or(Kind::Disabled)?;
    let result = world.call(call, request);
    CURRENT.with(|c| c.replace(Some(world)));
    result
}

pub(crate) fn log(level: Level, text: &str) {
    CURRENT.with(|c| {
        if let Some(world) = c.borrow_mut().as_mut() {
            world.log.push((level, text.to_owned()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv;

    #[test]
    fn a_world_ends_with_its_run() {
        let mut world = World::new().values([("a", "1")]);
        world.run(|| {
            crate::log(Level::Warn, format_args!("{} files", 2));
            World::new().run(|| assert_eq!(kv::get("a").unwrap_err().kind(), Kind::NotGranted));
            assert!(kv::get("a").unwrap().is_some());
        });
        assert_eq!(world.log(), [(Level::Warn, "2 files".to_owned())]);
        crate::log(Level::Warn, "nobody hears it");
        assert_eq!(world.log().len(), 1);

        let hand_panics = std::panic::AssertUnwindSafe(|| world.run(|| panic!("as it should")));
        assert!(std::panic::catch_unwind(hand_panics).is_err());
        assert_eq!(world.value("a"), Some(&b"1"[..]));
        assert_eq!(kv::get("a").unwrap_err().kind(), Kind::Disabled);
    }

    #[test]
    fn a_fetcher_is_outside() {
        let mut world = World::new().values([]).fetcher(|_| {
            assert_eq!(kv::get("a").unwrap_err().kind(), Kind::Disabled);
            Ok(http::Response::new(200, ""))
        });
        world.run(|| {
            http::get("x").fetch().unwrap();
            assert_eq!(kv::get("a").unwrap(), None);
        });
    }
}
