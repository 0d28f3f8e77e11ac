//! What a hand of Glovebox is written with: a module of WebAssembly that is asked a question
//! and answers with a text, in a sealed box. `README.md` has a whole first hand.
//!
//! ```
//! use glovebox_hand::{hand, Query};
//!
//! hand!(answer);
//!
//! fn answer(query: &Query) -> Result<String, String> {
//!     Ok(format!("Nothing happened before {}.", query.now))
//! }
//! # fn main() {}
//! ```
//!
//! Each capability is a module: `files`, `http`, `kv`, `llm`. Using one makes the module ask
//! for it; the manifest must ask for it too. `testing::World` stands for the host natively.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

#[allow(missing_docs)] // The names say it, and abi/ABI.md.
pub mod abi;
mod error;
pub mod files;
mod guest;
pub mod http;
pub mod json;
pub mod kv;
pub mod llm;
mod query;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod time;
pub mod tokens;

pub use abi::{Kind, Level};
pub use error::Error;
pub use query::{Config, Query};
pub use time::Timestamp;

/// Writes one or more lines to the query's log, which the operator can read:
/// `log(Level::Info, "done")`, `log(Level::Warn, format_args!("{n} files left out"))`.
pub fn log(level: Level, message: impl std::fmt::Display) {
    guest::log(level, &message.to_string());
}

/// Makes a function the hand's answer: it exports the entry that the host calls.
///
/// The function takes a `&Query` and returns a `Result`. An `Ok` is the reply, anything
/// that becomes a `String`; an empty one means that there is nothing to say. An `Err` is
/// anything that can be displayed: its text is shown to the operator as external text.
/// A panic fails the query too, with its message and place.
///
/// Use it once, in a crate of type `cdylib`. Natively it exports nothing: a test calls
/// the function itself.
#[macro_export]
macro_rules! hand {
    ($answer:expr) => {
        const _: extern "C" fn() -> i32 = {
            #[cfg_attr(target_family = "wasm", export_name = "glovebox_query_v1")]
            extern "C" fn query() -> i32 {
                $crate::__answer($answer)
            }
            query
        };
    };
}

/// Names a function that a host may call before the first query: it keeps the memory as
/// it is then, and each query begins with a copy of it, without building again what the
/// function built.
///
/// ```
/// use glovebox_hand::{hand, warm, Query};
///
/// thread_local! {
///     static SQUARES: Vec<u32> = (0..1000).map(|n| n * n).collect();
/// }
///
/// hand!(answer);
/// warm!(|| SQUARES.with(|_| ()));
///
/// fn answer(query: &Query) -> Result<String, String> {
///     Ok(SQUARES.with(|squares| squares[query.prompt.len()].to_string()))
/// }
/// # fn main() {}
/// ```
///
/// It may also never be called, so let it only do early what the answer does anyway, as
/// here. There is no query then, no capability and no log: a call of the host ends it, as
/// does a panic, and queries begin as if it had not run. The clock and chance are not real:
/// if the first `HashMap` is made then, all have the same keys in every query.
///
/// Use it once, beside `hand!`. Natively it exports nothing.
#[macro_export]
macro_rules! warm {
    ($warm:expr) => {
        const _: extern "C" fn() = {
            #[cfg_attr(target_family = "wasm", export_name = "glovebox_warm_v1")]
            extern "C" fn warm() {
                $crate::__warm($warm)
            }
            warm
        };
    };
}

#[doc(hidden)]
pub fn __warm(warm: impl FnOnce()) {
    warm();
}

#[doc(hidden)]
pub fn __answer<F, R, E>(answer: F) -> i32
where
    F: FnOnce(&Query) -> Result<R, E>,
    R: Into<String>,
    E: std::fmt::Display,
{
    guest::report_panics();
    let query = match Query::from_json(&guest::query()) {
        Ok(query) => query,
        Err(error) => return failed(&error),
    };
    match answer(&query) {
        Ok(text) => {
            guest::reply(&text.into());
            0
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> i32 {
    guest::fail(&error.to_string());
    1
}
