//! The sample hand: it does what its prompt says. `abi/conformance/SAMPLE.md` has the
//! commands; the sample of each SDK answers with the same bytes.

use std::time::Duration;

use glovebox_hand::{files, hand, http, kv, llm, log, tokens, Config, Error, Level, Query};

hand!(answer);

/// The name of the root that the sample is granted.
const ROOT: &str = "docs";

/// The most that `read` takes, well below the memory that a hand has.
const READ_BYTES: usize = 16 << 20;

/// What becomes of one line of the prompt.
enum Done {
    Said(String),
    Nothing,
    BadArguments,
    Unknown,
    NotText,
    Failed(String),
}

use Done::{BadArguments, Nothing, Said};

fn answer(query: &Query) -> Result<String, String> {
    let mut texts = Vec::new();
    for line in lines(&query.prompt) {
        let (word, rest) = match line.split_once(' ') {
            Some((word, rest)) => (word, Some(rest)),
            None => (line, None),
        };
        match run(query, word, rest) {
            Ok(Said(text)) => texts.push(text),
            Ok(Nothing) => {}
            Ok(BadArguments) => texts.push(format!("error: bad arguments for {word}")),
            Ok(Done::Unknown) => texts.push(format!("error: unknown command {word}")),
            Ok(Done::NotText) => texts.push("error: not text".to_owned()),
            Ok(Done::Failed(text)) => return Err(text),
            Err(error) => texts.push(format!("error: {}", error.kind().name())),
        }
    }
    let mut reply = texts.join("\n");
    reply.truncate(tokens::cut(&reply, query.max_output_tokens).len());
    Ok(reply)
}

/// The lines of a prompt. An LF ends a line, and the last needs none.
fn lines(prompt: &str) -> impl Iterator<Item = &str> {
    prompt
        .split_inclusive('\n')
        .map(|line| line.strip_suffix('\n').unwrap_or(line))
}

/// Does one command. `rest` is what follows the space after its word, if there is one.
fn run(query: &Query, word: &str, rest: Option<&str>) -> Result<Done, Error> {
    let text = rest.unwrap_or("");
    match word {
        "say" => Ok(Said(text.to_owned())),
        "query" | "config" if rest.is_some() => Ok(BadArguments),
        "query" => Ok(Said(described(query))),
        "config" => Ok(joined(configured(&query.config))),
        "log" => {
            let (level, text) = first(text);
            let level = match level {
                "debug" => Level::Debug,
                "info" => Level::Info,
                "warn" => Level::Warn,
                "error" => Level::Error,
                _ => return Ok(BadArguments),
            };
            log(level, text.unwrap_or(""));
            Ok(Nothing)
        }
        "fail" => Ok(Done::Failed(text.to_owned())),
        "tokens" => Ok(Said(tokens::estimate(text).to_string())),
        "cut" => {
            let (digits, text) = first(text);
            if digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Ok(BadArguments);
            }
            Ok(match digits.parse() {
                Ok(max) => Said(tokens::cut(text.unwrap_or(""), max).to_owned()),
                Err(_) => BadArguments,
            })
        }
        "list" => list(text),
        "read" => Ok(text_of(files::root(ROOT).read(text, READ_BYTES)?)),
        "size" => {
            let mut size = 0;
            for piece in files::root(ROOT).pieces(text) {
                size += piece?.len();
            }
            Ok(Said(size.to_string()))
        }
        "get" if text.is_empty() => Ok(BadArguments),
        "get" => fetch(&http::get(text)),
        "post" => match first(text) {
            ("", _) => Ok(BadArguments),
            (url, body) => fetch(
                &http::post(url, body.unwrap_or(""))
                    .header("Content-Type", "text/plain")
                    .timeout(Duration::from_millis(2000)),
            ),
        },
        "kv-set" => match first(text) {
            ("", _) | (_, None) => Ok(BadArguments),
            (key, Some(value)) => {
                kv::set(key, value)?;
                Ok(Said("ok".to_owned()))
            }
        },
        "kv-get" | "kv-delete" if text.is_empty() => Ok(BadArguments),
        "kv-get" => Ok(match kv::get(text)? {
            Some(value) => text_of(value),
            None => Said("error: not_found".to_owned()),
        }),
        "kv-delete" => {
            kv::delete(text)?;
            Ok(Said("ok".to_owned()))
        }
        "kv-list" => Ok(joined(kv::keys(text).collect::<Result<Vec<_>, _>>()?)),
        "ask" => {
            let answer = llm::prompt(text)
                .system("Answer in one sentence.")
                .max_output_tokens(64)
                .complete()?;
            let (input, output) = (answer.input_tokens, answer.output_tokens);
            Ok(Said(format!("{} ({input}+{output} tokens)", answer.text)))
        }
        _ => Ok(Done::Unknown),
    }
}

/// Divides the first argument from the rest, which is `None` where no space follows it.
fn first(arguments: &str) -> (&str, Option<&str>) {
    match arguments.split_once(' ') {
        Some((argument, rest)) => (argument, Some(rest)),
        None => (arguments, None),
    }
}

/// One text of many lines; none gives not even a line.
fn joined(lines: Vec<String>) -> Done {
    match lines.is_empty() {
        true => Nothing,
        false => Said(lines.join("\n")),
    }
}

fn text_of(bytes: Vec<u8>) -> Done {
    String::from_utf8(bytes).map_or(Done::NotText, Said)
}

fn described(q: &Query) -> String {
    format!(
        "from={:.0}\nto={:.0}\nnow={:.0}\ntimezone={}\nmax_output_tokens={}\nsubject={}",
        q.from, q.to, q.now, q.timezone, q.max_output_tokens, q.subject
    )
}

fn configured(config: &Config) -> Vec<String> {
    let thousandths = |n: f64| (n * 1000.0).round() as i64;
    let values = [
        ("greeting", config.string("greeting").map(str::to_owned)),
        ("loud", config.boolean("loud").map(|b| b.to_string())),
        (
            "ratio",
            config
                .number("ratio")
                .map(|n| format!("{}/1000", thousandths(n))),
        ),
        ("times", config.integer("times").map(|n| n.to_string())),
        ("words", config.list("words").map(|items| items.join(","))),
    ];
    let given = values
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    given.map(|(key, value)| format!("{key}={value}")).collect()
}

fn list(path: &str) -> Result<Done, Error> {
    let line = |entry: &files::Entry| {
        let (kind, size) = (entry.kind.name(), entry.size);
        format!("{kind} {size} {:.0} {}", entry.modified, entry.name)
    };
    let root = files::root(ROOT);
    let listing = root.list(path)?;
    if listing.about().kind != files::EntryKind::Directory {
        return Ok(Said(line(listing.about())));
    }
    let mut lines = Vec::new();
    for entry in listing {
        lines.push(line(&entry?));
    }
    Ok(joined(lines))
}

fn fetch(request: &http::Request) -> Result<Done, Error> {
    let response = request.fetch()?;
    let answer = response.header("X-Answer").unwrap_or("-");
    Ok(match std::str::from_utf8(&response.body) {
        Ok(body) => {
            let cut = if response.truncated { " (cut)" } else { "" };
            Said(format!("{} {answer} {body}{cut}", response.status))
        }
        Err(_) => Done::NotText,
    })
}

#[cfg(test)]
mod tests;
