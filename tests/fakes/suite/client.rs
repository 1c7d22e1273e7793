//! A client on a bare socket, which sees every byte and how the connection ends.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fakes::{self, Fakes};

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By FIN.
    Closed,
    /// By RST.
    Reset,
    /// Not within the time given.
    Silent,
}

/// What came over the wire, to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 where there was none.
    pub(crate) status: u16,
    /// The head as sent.
    pub(crate) head: String,
    /// The body without its framing, as far as it came.
    pub(crate) body: Vec<u8>,
    /// Whether the framing says that it is whole.
    pub(crate) whole: bool,
    /// How the connection ended.
    pub(crate) end: End,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("not JSON ({error}): {}", self.text());
        })
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A server of its own for each test.
pub(crate) async fn fakes() -> Fakes {
    fakes::start(0, None).await.expect("a free port")
}

/// Sends a request with `Connection: close` and reads to the end.
pub(crate) async fn send(
    fakes: &Fakes,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    send_within(fakes, method, path, headers, body, Duration::from_secs(10)).await
}

/// The same, giving up after a while.
pub(crate) async fn send_within(
    fakes: &Fakes,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    patience: Duration,
) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", fakes.port()))
        .await
        .expect("it listens");
    let mut lines = vec![
        format!("{method} {path} HTTP/1.1\r\nhost: fakes\r\nconnection: close"),
        format!("content-length: {}", body.len()),
    ];
    lines.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    let request = format!("{}\r\n\r\n", lines.join("\r\n"));
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    stream.write_all(body).await.expect("it reads");
    let mut bytes = Vec::new();
    let end = match tokio::time::timeout(patience, read_to_end(&mut stream, &mut bytes)).await {
        Ok(Ok(())) => End::Closed,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => End::Reset,
        Ok(Err(error)) => panic!("unexpected: {error}"),
        Err(_elapsed) => End::Silent,
    };
    parse(&bytes, end)
}

/// A call of `/__fakes`.
pub(crate) async fn control(fakes: &Fakes, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = send(
        fakes,
        method,
        &format!("/__fakes{path}"),
        &[],
        body.as_bytes(),
    )
    .await;
    assert!(answer.status < 300, "{} {}", answer.status, answer.text());
    if answer.body.is_empty() {
        Value::Null
    } else {
        answer.json()
    }
}

/// Queues a fault for the next request to a service.
pub(crate) async fn script(fakes: &Fakes, service: &str, fault: Value) {
    control(
        fakes,
        "POST",
        "/script",
        json!({"for": service, "fault": fault}),
    )
    .await;
}

/// Asks the fake model, by `generateContent` or `streamGenerateContent?alt=sse`.
pub(crate) async fn generate(fakes: &Fakes, method: &str, prompt: &str) -> Answer {
    let body = json!({"contents": [{"role": "user", "parts": [{"text": prompt}]}]});
    generate_with(fakes, method, &body).await
}

/// Asks the fake model with a body of one's own.
pub(crate) async fn generate_with(fakes: &Fakes, method: &str, body: &Value) -> Answer {
    let path = format!("/v1beta/models/gemini-3.8-flash:{method}");
    let key = [("x-goog-api-key", "test-key")];
    send(fakes, "POST", &path, &key, body.to_string().as_bytes()).await
}

/// The objects of an event stream.
pub(crate) fn events(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let payloads = text
        .split("\r\n\r\n")
        .filter_map(|event| event.strip_prefix("data: "));
    payloads
        .map(|payload| serde_json::from_str(payload).expect("JSON"))
        .collect()
}

async fn read_to_end(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    while stream.read_buf(bytes).await? > 0 {}
    Ok(())
}

fn parse(bytes: &[u8], end: End) -> Answer {
    let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(head_end) = head_end else {
        return Answer {
            status: 0,
            head: String::new(),
            body: bytes.to_vec(),
            whole: false,
            end,
        };
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let rest = &bytes[head_end + 4..];
    let mut answer = Answer {
        status,
        head,
        body: rest.to_vec(),
        whole: true,
        end,
    };
    if answer.header("transfer-encoding") == Some("chunked") {
        (answer.body, answer.whole) = dechunk(rest);
    } else if let Some(length) = answer.header("content-length") {
        answer.whole = length.parse() == Ok(rest.len());
    }
    answer
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(line_end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line_end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        rest = &rest[line_end + 2..];
        if size == 0 {
            return (body, rest == b"\r\n");
        }
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        match rest.get(size + 2..) {
            Some(after) => rest = after,
            None => break,
        }
    }
    (body, false)
}
