//! The constants of the contract. Written by `go generate ./sdk/internal/constants`
//! from the Go package `abi`: change them there.

/// The major version of the contract.
pub const VERSION: u32 = 1;
/// The name of the entry that a hand exports; `hand!` does so.
pub const EXPORT_QUERY: &str = "glovebox_query_v1";
/// The name of what a host may call before the first query; `warm!` exports it.
pub const EXPORT_WARM: &str = "glovebox_warm_v1";

// The import modules.
pub const MODULE_CORE: &str = "glovebox";
pub const MODULE_HTTP: &str = "glovebox_http";
pub const MODULE_FILES: &str = "glovebox_files";
pub const MODULE_KV: &str = "glovebox_kv";
pub const MODULE_LLM: &str = "glovebox_llm";

/// Why a call failed. The names are the same in every language, log and API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    BadPointer,
    NotGranted,
    BadRequest,
    TooLarge,
    TooManyCalls,
    QuotaExceeded,
    Denied,
    NotFound,
    Timeout,
    Disabled,
    Unavailable,
}

impl Kind {
    /// The kinds, in the order of their codes.
    pub const ALL: [Kind; 11] = [
        Kind::BadPointer,
        Kind::NotGranted,
        Kind::BadRequest,
        Kind::TooLarge,
        Kind::TooManyCalls,
        Kind::QuotaExceeded,
        Kind::Denied,
        Kind::NotFound,
        Kind::Timeout,
        Kind::Disabled,
        Kind::Unavailable,
    ];

    /// The name of the kind in the contract, such as `not_found`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::BadPointer => "bad_pointer",
            Kind::NotGranted => "not_granted",
            Kind::BadRequest => "bad_request",
            Kind::TooLarge => "too_large",
            Kind::TooManyCalls => "too_many_calls",
            Kind::QuotaExceeded => "quota_exceeded",
            Kind::Denied => "denied",
            Kind::NotFound => "not_found",
            Kind::Timeout => "timeout",
            Kind::Disabled => "disabled",
            Kind::Unavailable => "unavailable",
        }
    }

    /// The negative number that stands for the kind in the result of a host call.
    pub const fn code(self) -> i32 {
        match self {
            Kind::BadPointer => -1,
            Kind::NotGranted => -2,
            Kind::BadRequest => -3,
            Kind::TooLarge => -4,
            Kind::TooManyCalls => -5,
            Kind::QuotaExceeded => -6,
            Kind::Denied => -7,
            Kind::NotFound => -8,
            Kind::Timeout => -9,
            Kind::Disabled => -10,
            Kind::Unavailable => -11,
        }
    }

    /// The kind of a negative result. One that the contract does not have is
    /// `Unavailable`.
    pub const fn of_code(code: i32) -> Kind {
        match code {
            -1 => Kind::BadPointer,
            -2 => Kind::NotGranted,
            -3 => Kind::BadRequest,
            -4 => Kind::TooLarge,
            -5 => Kind::TooManyCalls,
            -6 => Kind::QuotaExceeded,
            -7 => Kind::Denied,
            -8 => Kind::NotFound,
            -9 => Kind::Timeout,
            -10 => Kind::Disabled,
            -11 => Kind::Unavailable,
            _ => Kind::Unavailable,
        }
    }
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Level {
    Debug = 0,
    Info = 1,
    Warn = 2,
    Error = 3,
}

// What the contract bounds.
pub const MAX_PROMPT_BYTES: usize = 16384;
pub const MAX_REQUEST_BYTES: usize = 1048576;
pub const MAX_FAILURE_BYTES: usize = 16384;
pub const MAX_PAGE_ENTRIES: usize = 1000;
pub const MAX_KEY_BYTES: usize = 512;

// What the host allows unless the operator changed it.
pub const DEFAULT_OUTPUT_BYTES: u64 = 65536;
pub const DEFAULT_LOG_BYTES: u64 = 65536;
pub const DEFAULT_LOG_LINES: u64 = 1000;
pub const DEFAULT_CALLS: u64 = 10000;
pub const DEFAULT_FILE_READ_BYTES: u64 = 1048576;
pub const DEFAULT_FILE_TOTAL_BYTES: u64 = 268435456;
pub const DEFAULT_HTTP_REQUESTS: u64 = 20;
pub const DEFAULT_HTTP_BYTES: u64 = 4194304;
pub const DEFAULT_HTTP_TIMEOUT_MILLIS: u64 = 10000;
pub const DEFAULT_KV_VALUE_BYTES: u64 = 1048576;
pub const DEFAULT_KV_TOTAL_BYTES: u64 = 16777216;
pub const DEFAULT_LLM_CALLS: u64 = 8;
pub const DEFAULT_LLM_INPUT_TOKENS: u64 = 16000;

pub(crate) const QUARTERS_PER_TOKEN: usize = 4;
/// The weight of a code point that is in none of `WEIGHTS`, in quarters of a token.
pub(crate) const PLAIN_QUARTERS: usize = 1;
/// First and last code point of a range, and the weight of each in quarters.
pub(crate) const WEIGHTS: [(u32, u32, usize); 10] = [
    (0x3000, 0x30FF, 6),
    (0x3400, 0x4DBF, 6),
    (0x4E00, 0x9FFF, 6),
    (0xAC00, 0xD7AF, 6),
    (0xFF00, 0xFFEF, 6),
    (0x10000, 0x1FFFF, 8),
    (0x20000, 0x2A6DF, 6),
    (0x2A6E0, 0x2A6FF, 8),
    (0x2A700, 0x2EBEF, 6),
    (0x2EBF0, 0x10FFFF, 8),
];
