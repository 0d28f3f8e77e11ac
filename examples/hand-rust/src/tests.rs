use glovebox_hand::testing::World;
use glovebox_hand::{http, llm, Kind, Level, Query};

use super::answer;

fn ask(world: &mut World, prompt: &str) -> Result<String, String> {
    world.run(|| answer(&Query::new(prompt)))
}

/// Lines and arguments are the sample's own work; that the whole answers as the other
/// samples do is tested with `testdata/abi/sample.json`.
#[test]
fn lines_and_arguments() {
    let mut world = World::new().values([]);
    for (prompt, want) in [
        ("", ""),
        ("say", ""),
        ("say  a b ", " a b "),
        ("say a\nsay b", "a\nb"),
        ("say a\nsay b\n", "a\nb"),
        ("\n", "error: unknown command "),
        ("dance now\nsay on", "error: unknown command dance\non"),
        ("query now", "error: bad arguments for query"),
        ("log loud x", "error: bad arguments for log"),
        ("cut 2 abcdefghijk", "abcdefgh"),
        ("cut 0 abc", ""),
        ("cut 1234567890 abc", "error: bad arguments for cut"),
        ("cut +1 abc", "error: bad arguments for cut"),
        ("cut", "error: bad arguments for cut"),
        ("tokens abcde", "2"),
        ("get", "error: bad arguments for get"),
        ("post  x", "error: bad arguments for post"),
        ("kv-set k", "error: bad arguments for kv-set"),
        ("kv-set  v", "error: bad arguments for kv-set"),
        ("kv-set k \nkv-get k\nkv-list", "ok\n\nk"),
        ("kv-delete k\nkv-get k\nkv-list", "ok\nerror: not_found"),
        ("config", ""),
        ("ask", "error: bad_request"),
        ("list", "error: not_granted"),
    ] {
        assert_eq!(ask(&mut world, prompt).as_deref(), Ok(want), "{:?}", prompt);
    }
    assert_eq!(
        ask(&mut world, "say a\nfail so\nlog info x"),
        Err("so".to_owned())
    );
    assert!(world.log().is_empty());
}

#[test]
fn what_it_reaches() {
    let mut world = World::new()
        .file("docs", "a.txt", "text")
        .file("docs", "b/c", &b"\xff"[..])
        .fetcher(|request| {
            let mut response = http::Response::new(200, request.body.clone());
            response
                .headers
                .push(("x-answer".to_owned(), request.method.clone()));
            response.truncated = request.body.is_empty();
            Ok(response)
        })
        .model(|request| match request.max_output_tokens {
            64 => Ok(llm::Response::new(request.system.clone())),
            _ => Err(Kind::BadRequest),
        });
    for (prompt, want) in [
        (
            "list",
            "file 4 2026-03-23T09:00:00Z a.txt\ndir 0 2026-03-23T09:00:00Z b",
        ),
        ("list b/c", "file 1 2026-03-23T09:00:00Z c"),
        ("read a.txt", "text"),
        ("read b/c\nsize b/c", "error: not text\n1"),
        ("get http://x", "200 GET  (cut)"),
        ("post http://x a b", "200 POST a b"),
        ("ask why", "Answer in one sentence. (0+0 tokens)"),
        ("log warn careful", ""),
    ] {
        assert_eq!(ask(&mut world, prompt).as_deref(), Ok(want), "{:?}", prompt);
    }
    assert_eq!(world.log(), [(Level::Warn, "careful".to_owned())]);
}

#[test]
fn the_query_and_its_budget() {
    let mut query = Query::new("query\nconfig");
    query.now = "2026-03-23T10:00:00.9+01:00".parse().unwrap();
    query.config.set("ratio", -0.0005);
    query.config.set("loud", true);
    query.config.set("words", vec!["a", "b"]);
    let want = "from=2026-03-22T09:00:00Z\nto=2026-03-23T09:00:00Z\nnow=2026-03-23T09:00:00Z\n\
        timezone=UTC\nmax_output_tokens=2000\nsubject=test\nloud=true\nratio=-1/1000\nwords=a,b";
    assert_eq!(answer(&query).as_deref(), Ok(want));
    query.max_output_tokens = 3;
    assert_eq!(answer(&query).as_deref(), Ok("from=2026-03"));
}
