use crate::json::{self, Value};
use crate::time::Timestamp;

/// What the hand is asked.
///
/// The host fills it. A test makes one with `Query::new` and sets what it needs:
///
/// ```
/// use glovebox_hand::Query;
///
/// let mut query = Query::new("What is on?");
/// query.now = "2026-03-23T09:00:00Z".parse().unwrap();
/// query.config.set("greeting", "hello");
/// assert_eq!(query.config.string("greeting"), Some("hello"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Query {
    /// The operator's question.
    pub prompt: String,
    /// The beginning of the window asked about: `from <= t < to`.
    pub from: Timestamp,
    /// The end of the window.
    pub to: Timestamp,
    /// The host's time of asking; use it in place of a clock.
    pub now: Timestamp,
    /// The IANA name of the zone to show times in.
    pub timezone: String,
    /// The size to keep to, counted as `tokens::estimate` does; the host cuts what is
    /// longer.
    pub max_output_tokens: usize,
    /// The operator's values, of the types that the manifest declares.
    pub config: Config,
    /// Opaque, and the same for this hand and one user.
    pub subject: String,
}

impl Query {
    /// A query for a test: asked on 2026-03-23 at 09:00 in UTC about the day before, for
    /// an answer of at most 2,000 tokens, without configuration.
    pub fn new(prompt: impl Into<String>) -> Query {
        let now = Timestamp::from_unix(1_774_256_400);
        Query {
            prompt: prompt.into(),
            from: Timestamp::from_unix(now.unix() - 86_400),
            to: now,
            now,
            timezone: "UTC".to_owned(),
            max_output_tokens: 2000,
            config: Config::default(),
            subject: "test".to_owned(),
        }
    }

    /// Reads the query as the host writes it. Members that it does not know are ignored.
    /// The error names the member that is missing or not of its form.
    pub fn from_json(text: &[u8]) -> Result<Query, QueryError> {
        let value = json::parse(text).map_err(QueryError::NotJson)?;
        let string = |name| {
            let text = value.get(name).and_then(Value::as_str);
            text.ok_or(QueryError::Member(name))
        };
        let time = |name| string(name)?.parse().map_err(|_| QueryError::Member(name));
        let tokens = value.get("max_output_tokens").and_then(Value::as_i64);
        let tokens = tokens.filter(|n| *n >= 1);
        Ok(Query {
            prompt: string("prompt")?.to_owned(),
            from: time("from")?,
            to: time("to")?,
            now: time("now")?,
            timezone: string("timezone")?.to_owned(),
            max_output_tokens: tokens
                .map(|n| usize::try_from(n).unwrap_or(usize::MAX))
                .ok_or(QueryError::Member("max_output_tokens"))?,
            config: match value.get("config") {
                None | Some(Value::Null) => Config::default(),
                Some(Value::Object(values)) => Config {
                    values: values.clone(),
                },
                Some(_) => return Err(QueryError::Member("config")),
            },
            subject: string("subject").unwrap_or_default().to_owned(),
        })
    }
}

/// Why a text is not a query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// It is not JSON.
    NotJson(json::ParseError),
    /// The member of this name is missing or not of its form.
    Member(&'static str),
}

impl std::fmt::Display for QueryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QueryError::NotJson(error) => write!(f, "read query: {}", error),
            QueryError::Member(name) => {
                write!(f, "read query: {} is missing or not of its form", name)
            }
        }
    }
}

impl std::error::Error for QueryError {}

/// The operator's values by their keys. The host has checked them against the manifest:
/// a value is there, with the manifest's type, or nobody gave one and it has no default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    values: Vec<(String, Value)>,
}

impl Config {
    /// The value of a key of the type `string`.
    pub fn string(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// The value of a key of the type `boolean`.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// The value of a key of the type `integer`.
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// The value of a key of the type `number`.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// The value of a key of the type `list`.
    pub fn list(&self, key: &str) -> Option<Vec<&str>> {
        let items = self.get(key)?.as_array()?;
        items.iter().map(Value::as_str).collect()
    }

    /// Gives a key its value, for a test: a `&str`, `bool`, `i64`, `f64` or `Vec<&str>`.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.values.push((key.into(), value.into()));
    }

    /// The last value of a key counts.
    fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().rev().find(|v| v.0 == key).map(|v| &v.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"prompt":"what","from":"2026-03-23T00:00:00Z","to":"2026-03-24T00:00:00Z",
        "now":"2026-03-24T08:00:00+01:00","timezone":"Europe/Berlin","max_output_tokens":256,
        "config":{"n":3,"f":1.5,"l":["a","b"],"s":"x","b":true,"whole":2},"subject":"abc",
        "a field of tomorrow":{"x":1}}"#;

    #[test]
    fn reads_all_of_it() {
        let q = Query::from_json(WHOLE.as_bytes()).unwrap();
        assert_eq!((q.prompt.as_str(), q.subject.as_str()), ("what", "abc"));
        assert_eq!(
            (q.timezone.as_str(), q.max_output_tokens),
            ("Europe/Berlin", 256)
        );
        assert_eq!(q.to.unix() - q.from.unix(), 86_400);
        assert_eq!(q.now.to_string(), "2026-03-24T07:00:00Z");
        let c = &q.config;
        assert_eq!(
            (c.integer("n"), c.number("f"), c.number("whole")),
            (Some(3), Some(1.5), Some(2.0))
        );
        assert_eq!((c.string("s"), c.boolean("b")), (Some("x"), Some(true)));
        assert_eq!(c.list("l"), Some(vec!["a", "b"]));
        assert_eq!(
            (c.string("n"), c.string("absent"), c.list("s")),
            (None, None, None)
        );
        assert_eq!(
            (c.integer("f"), c.boolean("n"), c.number("s")),
            (None, None, None)
        );
    }

    #[test]
    fn what_may_be_absent() {
        let text = WHOLE
            .replace("\"config\"", "\"other\"")
            .replace("\"subject\"", "\"another\"");
        let q = Query::from_json(text.as_bytes()).unwrap();
        assert_eq!((q.config, q.subject.as_str()), (Config::default(), ""));
    }

    #[test]
    fn says_what_is_wrong() {
        for name in [
            "prompt",
            "from",
            "to",
            "now",
            "timezone",
            "max_output_tokens",
        ] {
            let text = WHOLE.replace(&format!("\"{}\"", name), "\"other\"");
            let error = Query::from_json(text.as_bytes()).unwrap_err();
            assert_eq!(error, QueryError::Member(name), "{}", text);
        }
        for (from, to) in [
            ("256", "0"),
            ("256", "1.5"),
            ("2026-03-24T08", "2026-03-24 08"),
            (r#"{"n""#, r#"[{"n""#),
            ("what", "\\"),
        ] {
            let text = WHOLE.replacen(from, to, 1);
            assert!(Query::from_json(text.as_bytes()).is_err(), "{}", text);
        }
    }

    #[test]
    fn a_later_value_replaces() {
        let mut q = Query::new("");
        q.config.set("n", 1);
        q.config.set("n", 2);
        q.config.set("l", vec!["a"]);
        assert_eq!(
            (q.config.integer("n"), q.config.list("l")),
            (Some(2), Some(vec!["a"]))
        );
        assert_eq!(q.now.to_string(), "2026-03-23T09:00:00Z");
    }
}
