//! The messages of one parser, and their answers.

use std::{sync::Mutex, time::Duration};

use longshore_airflow::parser::{
    FromParser, ParseRequest, ParserReply, ParsingResult, ReplyBody, UnknownMessage,
};
use rmpv::Value;
use serde_json::{Value as Json, json};

use super::{
    Parsed, ParserRows,
    outcome::{AskedRows, judge, no_parser},
};
use crate::{
    answers::{Answer, Answers},
    end::Ended,
    frame::Frame,
    value,
};

/// The last message of the program around the parser: what it has read.
const READS: &str = "LongshoreReads";
/// The only message of a program that finds no parser: why.
const NO_PARSER: &str = "LongshoreNoParser";

pub(super) struct Handler<'a, R> {
    request: &'a ParseRequest,
    rows: &'a R,
    heard: Mutex<Heard>,
}

/// What the parser has said so far.
#[derive(Default)]
struct Heard {
    result: Option<ParsingResult>,
    /// The first message that was none.
    problem: Option<String>,
    reads: Option<Vec<String>>,
    no_parser: Option<Vec<String>>,
    asked: AskedRows,
}

impl<'a, R: ParserRows> Handler<'a, R> {
    pub(super) fn new(request: &'a ParseRequest, rows: &'a R) -> Self {
        Self {
            request,
            rows,
            heard: Mutex::default(),
        }
    }

    pub(super) fn finish(self, ended: Ended, took: Duration) -> Parsed {
        let heard = self.heard.into_inner();
        let heard = heard.unwrap_or_else(std::sync::PoisonError::into_inner);
        let outcome = match heard.no_parser {
            Some(why) => no_parser(&why),
            None => judge(
                self.request,
                heard.result,
                heard.problem,
                &ended.end,
                &ended.output,
            ),
        };
        Parsed {
            outcome,
            reads: heard.reads,
            asked: heard.asked,
            output: ended.output,
            usage: ended.usage,
            took,
        }
    }

    fn note(&self, note: impl FnOnce(&mut Heard)) {
        let heard = self.heard.lock();
        note(&mut heard.unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// A message that is none of a parser's: the code sees an exception, and its file has an import error.
    fn refuse(&self, why: String) -> Answer {
        self.note(|heard| {
            heard.problem.get_or_insert(why.clone());
        });
        let detail = json!({"message": why});
        error(&json!({"type": "ErrorResponse", "error": "GENERIC_ERROR", "detail": detail}))
    }
}

impl<R: ParserRows> Answers for Handler<'_, R> {
    async fn answer(&self, frame: Frame) -> Answer {
        if let Some(kind @ (READS | NO_PARSER)) = frame.kind() {
            let texts = texts(&frame.body);
            self.note(|heard| match kind {
                READS => heard.reads = texts,
                _ => heard.no_parser = Some(texts.unwrap_or_default()),
            });
            return Answer::Body(Value::Nil);
        }
        match read(frame.body, self.request).await {
            Ok(FromParser::Result(result)) => {
                self.note(|heard| {
                    heard.result.get_or_insert(*result);
                });
                body(&ParsingResult::reply())
            }
            Ok(FromParser::Question(question)) => {
                self.note(|heard| heard.asked.note(&question));
                let reply: ParserReply = self.rows.answer(&question).await;
                match reply.to_body(&question) {
                    ReplyBody::Body(json) => body(&json),
                    ReplyBody::Error(json) => error(&json),
                }
            }
            Err(why) => self.refuse(why),
        }
    }
}

/// The texts of a message of the program around the parser.
fn texts(body: &Value) -> Option<Vec<String>> {
    let mut body = value::to_json(body).ok()?;
    serde_json::from_value(body["texts"].take()).ok()
}

/// Reads a message. The documents of a large file take a while, so they are read beside everything else.
async fn read(body: Value, request: &ParseRequest) -> Result<FromParser, String> {
    let request = request.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let body = value::to_json(&body).map_err(|it| it.to_string())?;
        FromParser::read(body, &request).map_err(|it: UnknownMessage| it.to_string())
    });
    reading.await.map_err(|error| error.to_string())?
}

/// JSON is always writable, but for numbers that no message has.
fn body(json: &Json) -> Answer {
    Answer::Body(value::from_json(json).unwrap_or(Value::Nil))
}

fn error(json: &Json) -> Answer {
    Answer::Error(value::from_json(json).unwrap_or(Value::Nil))
}
