//! Scripted children: every limit, every way of ending, both ways of starting.

#![cfg(test)]

mod ends;
mod killed;
mod launches;
mod parsers;
mod prefork;
mod supervised;
mod trees;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::Command,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use longshore_python::{
    Answer, Answers, Child, Ended, Frame, Launch, Limits, Program, Starter, Value, value,
};
use serde_json::{Value as Json, json};

/// The longest that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interpreter itself, without the shims that version managers put before it.
fn python() -> PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let output = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .unwrap();
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    };
    PYTHON.get_or_init(find).clone()
}

fn plain() -> Starter {
    Starter::Plain(python())
}

/// A program with the prelude.
fn code(text: &str) -> Launch {
    Launch {
        program: Program::Code(format!("{}\n{text}", include_str!("frames.py"))),
        args: Vec::new(),
        // Without it, the interpreter adds LC_CTYPE to its own environment.
        env: BTreeMap::from([("LC_ALL".into(), "C.UTF-8".into())]),
        cwd: PathBuf::from("/"),
    }
}

/// No limit that a slow machine could meet.
fn limits() -> Limits {
    Limits {
        wall: Some(PATIENCE),
        memory: None,
        frame: 1 << 20,
        linger: PATIENCE,
        grace: PATIENCE,
        ..Limits::PARSER
    }
}

/// Answers every request with nil, and remembers it.
#[derive(Default)]
struct Told(Mutex<Vec<Json>>);

impl Answers for Told {
    async fn answer(&self, request: Frame) -> Answer {
        let body = value::to_json(&request.body).unwrap();
        self.0.lock().unwrap().push(body);
        Answer::Body(Value::Nil)
    }
}

impl Told {
    /// What the child told by this key.
    fn get(&self, key: &str) -> Json {
        let told = self.0.lock().unwrap();
        let found = told.iter().find_map(|body| body.get(key));
        found
            .unwrap_or_else(|| panic!("{key} is not in {told:?}"))
            .clone()
    }

    fn pid(&self, key: &str) -> i32 {
        self.get(key).as_i64().unwrap().try_into().unwrap()
    }

    async fn wait_for(&self, key: &str) -> Json {
        let is_told = || {
            self.0
                .lock()
                .unwrap()
                .iter()
                .any(|body| body.get(key).is_some())
        };
        until(is_told).await;
        self.get(key)
    }
}

/// Waits until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("the condition never held");
}

/// Whether a process exists that has not ended.
fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

/// Runs a program to its end, and returns what it told.
async fn run_with(starter: &Starter, launch: &Launch, limits: Limits) -> (Ended, Told) {
    let told = Told::default();
    let child = Child::start(starter, launch, limits).await.unwrap();
    let ended = child.supervise(None, &told, std::future::pending()).await;
    (ended, told)
}

async fn run(text: &str, limits: Limits) -> (Ended, Told) {
    run_with(&plain(), &code(text), limits).await
}

fn body(json: Json) -> Value {
    value::from_json(&json).unwrap()
}

/// A first frame.
fn hello() -> Option<Value> {
    Some(body(json!({"type": "Hello"})))
}
