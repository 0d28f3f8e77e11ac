//! Makes requests to the hosts that the operator granted to a hand. Using it makes the
//! module ask for the capability `http`; the manifest must ask for it too, with the hosts.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use glovebox_hand::{http, json};
//!
//! let response = http::get("https://api.example.com/v1/tickets").fetch()?;
//! if response.status == 200 {
//!     let tickets = json::parse(&response.body)?;
//! }
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use crate::abi::Kind;
use crate::error::Error;
use crate::guest;
use crate::json::{self, ObjectWriter, Value};

/// One exchange to make. The host sets the headers that are about the connection, the
/// encoding and the secrets; a hand may not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The method, in upper case.
    pub method: String,
    /// Begins with `https://` or `http://`, without user name and fragment.
    pub url: String,
    /// The fields of the header in order. Names may come more than once.
    pub headers: Vec<(String, String)>,
    /// The body; an empty one is none.
    pub body: Vec<u8>,
    /// Bounds the exchange, redirects included; `None` means the host's limit, which also
    /// is the most.
    pub timeout: Option<Duration>,
}

/// A `GET` of `url`.
pub fn get(url: impl Into<String>) -> Request {
    Request::new("GET", url)
}

/// A `POST` of `body` to `url`.
pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Request {
    let mut request = Request::new("POST", url);
    request.body = body.into();
    request
}

impl Request {
    /// A request without header and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Request {
        Request {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: None,
        }
    }

    /// Adds a field to the header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Request {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Bounds the exchange.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = Some(timeout);
        self
    }

    /// Makes the exchange. The host follows redirects. The error's kind says why there is
    /// no answer: `Denied` and `NotGranted` where the request is not allowed, `BadRequest`
    /// for a URL or a header that is not well-formed, `Timeout`, `QuotaExceeded` when the
    /// query's requests are used up, `TooLarge`, and `Unavailable` when the server is not
    /// there.
    pub fn fetch(&self) -> Result<Response, Error> {
        self.exchange()
            .map_err(|kind| Error::new(kind, format!("fetch {}", self.url)))
    }

    fn exchange(&self) -> Result<Response, Kind> {
        // Zero would mean the host's limit.
        let millis = self.timeout.map_or(0, |timeout| {
            let whole = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
            let rest = i64::from(timeout.subsec_nanos() % 1_000_000 > 0);
            whole.saturating_add(rest).max(1)
        });
        let mut request = ObjectWriter::new()
            .string("method", &self.method)
            .string("url", &self.url)
            .pairs("header", &self.headers)
            .integer("timeout_ms", millis)
            .finish();
        if !self.body.is_empty() {
            request.push(b'\n');
            request.extend_from_slice(&self.body);
        }
        response_of(guest::http_fetch(&request)?).ok_or(Kind::Unavailable)
    }
}

/// The answer to a request, after redirects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The code; one that tells of a failure is no error.
    pub status: u16,
    /// The last URL that was asked.
    pub url: String,
    /// The fields of the header in order. Names may come more than once.
    pub headers: Vec<(String, String)>,
    /// The decoded body. Secrets of the operator are redacted in it.
    pub body: Vec<u8>,
    /// The body is only the beginning: it was longer than the host's limit (4 MiB unless
    /// the operator changed it).
    pub truncated: bool,
}

impl Response {
    /// An answer with a body and nothing else, for a test.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status,
            url: String::new(),
            headers: Vec::new(),
            body: body.into(),
            truncated: false,
        }
    }

    /// The value of the first field called `name`, in letters of any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let field = self.headers.iter().find(|h| h.0.eq_ignore_ascii_case(name));
        field.map(|h| h.1.as_str())
    }
}

/// Reads what the host answers: JSON, LF, the body.
fn response_of(mut result: Vec<u8>) -> Option<Response> {
    let line = result.iter().position(|b| *b == b'\n')?;
    let head = json::parse(&result[..line]).ok()?;
    let headers = match head.get("header")? {
        Value::Null => Vec::new(),
        fields => fields
            .as_array()?
            .iter()
            .map(field_of)
            .collect::<Option<Vec<_>>>()?,
    };
    result.drain(..=line);
    Some(Response {
        status: u16::try_from(head.get("status")?.as_i64()?).ok()?,
        url: head.get("url")?.as_str()?.to_owned(),
        headers,
        body: result,
        truncated: head.get("truncated")?.as_bool()?,
    })
}

fn field_of(value: &Value) -> Option<(String, String)> {
    match value.as_array()? {
        [name, value] => Some((name.as_str()?.to_owned(), value.as_str()?.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::testing::World;

    #[test]
    fn requests_and_answers_arrive() {
        let asked = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&asked);
        let mut world = World::new().fetcher(move |request| {
            seen.borrow_mut().push(request.clone());
            let mut response = Response::new(404, &b"no\n\xff"[..]);
            response.headers = vec![("X-Answer".to_owned(), "\"42\"".to_owned())];
            response.truncated = true;
            Ok(response)
        });
        let post = post("https://example.com/a", "a\nb")
            .header("Content-Type", "text/plain")
            .timeout(Duration::from_micros(1_999_001));
        let response = world.run(|| post.fetch()).unwrap();
        assert_eq!(
            (response.status, response.url.as_str()),
            (404, "https://example.com/a")
        );
        assert_eq!(
            (response.body.as_slice(), response.truncated),
            (&b"no\n\xff"[..], true)
        );
        assert_eq!(response.header("x-ANSWER"), Some("\"42\""));
        assert_eq!(response.header("x"), None);
        let mut sent = post;
        sent.timeout = Some(Duration::from_millis(2000));
        assert_eq!(*asked.borrow(), [sent]);

        world.run(|| get("https://example.com/b").fetch()).unwrap();
        assert_eq!(asked.borrow()[1], get("https://example.com/b"));
        // Less than what can be said is not "the host's limit".
        world
            .run(|| get("").timeout(Duration::ZERO).fetch())
            .unwrap();
        assert_eq!(asked.borrow()[2].timeout, Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_failure_has_its_kind() {
        let mut world = World::new().fetcher(|_| Err(Kind::Timeout));
        let error = world
            .run(|| get("https://example.com").fetch())
            .unwrap_err();
        assert_eq!(error.to_string(), "fetch https://example.com: timeout");
        let error = World::new().run(|| get("x").fetch()).unwrap_err();
        assert_eq!(error.kind(), Kind::NotGranted);
    }

    #[test]
    fn an_answer_that_is_none_is_no_answer() {
        let head = r#"{"status":200,"url":"","header":null,"truncated":false}"#;
        assert!(response_of(format!("{}\n", head).into_bytes()).is_some());
        assert!(response_of(head.as_bytes().to_vec()).is_none());
        for (from, to) in [
            ("200", "70000"),
            ("null", r#"[["a"]]"#),
            ("false", "0"),
            ("}", ""),
        ] {
            let text = format!("{}\n", head.replace(from, to));
            assert!(response_of(text.into_bytes()).is_none(), "{}", to);
        }
    }
}
