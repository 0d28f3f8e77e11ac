//! Asks the host's language model. Using it makes the module ask for the capability `llm`;
//! the manifest must ask for it too.
//!
//! ```no_run
//! # fn main() -> Result<(), glovebox_hand::Error> {
//! use glovebox_hand::llm;
//!
//! let answer = llm::prompt("Which of these is urgent? ...")
//!     .system("Answer in one sentence.")
//!     .max_output_tokens(64)
//!     .complete()?;
//! # Ok(())
//! # }
//! ```
//!
//! The host limits the calls of one query and the tokens of their prompts together, by
//! default to 8 and 16,000. The answers of one query together have the tokens of its reply.
//!
//! The model has no tools. What it answers may repeat what a prompt holds that others
//! wrote, instructions for a model included: it is no more to be trusted.

use crate::abi::Kind;
use crate::error::Error;
use crate::guest;
use crate::json::{self, ObjectWriter};

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Says how to answer; it may be empty.
    pub system: String,
    /// What to answer. It must hold more than white space.
    pub prompt: String,
    /// Bounds the answer; 0, and more than is left of the query's, mean what is left.
    pub max_output_tokens: u32,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The answer, cut to the request's bound. It is empty if the model spent all on
    /// thinking.
    pub text: String,
    /// What the prompt cost, by the model's own count or the host's estimate.
    pub input_tokens: u64,
    /// What the answer cost, likewise.
    pub output_tokens: u64,
}

impl Response {
    /// An answer that cost nothing, for a test.
    pub fn new(text: impl Into<String>) -> Response {
        Response {
            text: text.into(),
            input_tokens: 0,
            output_tokens: 0,
        }
    }
}

/// A request for the answer to `text`.
pub fn prompt(text: impl Into<String>) -> Request {
    Request {
        system: String::new(),
        prompt: text.into(),
        max_output_tokens: 0,
    }
}

impl Request {
    /// Says how to answer.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Request {
        self.system = text.into();
        self
    }

    /// Bounds the answer.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Request {
        self.max_output_tokens = tokens;
        self
    }

    /// Asks. The error's kind is `BadRequest` for a prompt that is none, `QuotaExceeded`
    /// when calls or tokens are used up, `TooLarge` for a prompt over the model's window,
    /// `Denied` for one that the model's server rejects, `Timeout`, `Unavailable`,
    /// `TooManyCalls` or `NotGranted`; `Disabled` where there is no model.
    pub fn complete(&self) -> Result<Response, Error> {
        self.ask().map_err(|kind| Error::new(kind, "llm complete"))
    }

    fn ask(&self) -> Result<Response, Kind> {
        if self.prompt.trim().is_empty() {
            return Err(Kind::BadRequest);
        }
        let request = ObjectWriter::new()
            .string("system", &self.system)
            .string("prompt", &self.prompt)
            .integer("max_output_tokens", i64::from(self.max_output_tokens));
        let result = guest::llm_complete(&request.finish())?;
        response_of(&result).ok_or(Kind::Unavailable)
    }
}

fn response_of(text: &[u8]) -> Option<Response> {
    let value = json::parse(text).ok()?;
    let count = |name| u64::try_from(value.get(name)?.as_i64()?).ok();
    Some(Response {
        text: value.get("text")?.as_str()?.to_owned(),
        input_tokens: count("input_tokens")?,
        output_tokens: count("output_tokens")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn asks_and_is_answered() {
        let mut world = World::new().model(|request| {
            let wanted = prompt("Why?").system("Be \"short\".").max_output_tokens(64);
            assert_eq!(request, &wanted);
            let mut response = Response::new("So.\n");
            response.input_tokens = 7;
            response.output_tokens = 2;
            Ok(response)
        });
        let request = prompt("Why?").system("Be \"short\".").max_output_tokens(64);
        let answer = world.run(|| request.complete()).unwrap();
        assert_eq!(answer.text, "So.\n");
        assert_eq!((answer.input_tokens, answer.output_tokens), (7, 2));
    }

    #[test]
    fn a_failure_has_its_kind() {
        let mut world = World::new().model(|_| Err(Kind::QuotaExceeded));
        world.run(|| {
            let error = prompt("Why?").complete().unwrap_err();
            assert_eq!(error.to_string(), "llm complete: quota exceeded");
            assert_eq!(
                prompt(" \n").complete().unwrap_err().kind(),
                Kind::BadRequest
            );
        });
        assert_eq!(
            prompt("Why?").complete().unwrap_err().kind(),
            Kind::Disabled
        );
        assert!(response_of(br#"{"text":"a","input_tokens":-1,"output_tokens":0}"#).is_none());
    }
}
