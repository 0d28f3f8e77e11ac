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
        fields => fields.as_array()?.iter().map(field_of).collect::<Option<Vec<_>>>()?,
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
