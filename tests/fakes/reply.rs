//! A reply and how it goes over the wire: whole, slowly, in single bytes, or cut in any place.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::state::Shared;

/// What is answered, and the plan for sending it.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// Headers besides the framing ones.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, in the pieces it is sent in.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Sent with chunks where true, else with a length.
    pub(crate) chunked: bool,
    /// How it is sent.
    pub(crate) plan: Box<Plan>,
    /// The ledger entry that is marked as cut where the caller doesn't get all of it.
    pub(crate) ledger_entry: Option<u64>,
    /// Another answer stands in the place of the one that was paid for.
    pub(crate) denied: bool,
}

/// How a reply is sent; the default is at once and whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// Waits for this gate before the headers.
    pub(crate) gate: Option<String>,
    /// Waits for this gate after the first piece.
    pub(crate) gate_mid: Option<String>,
    /// Waits before the headers.
    pub(crate) delay: Duration,
    /// Waits between pieces.
    pub(crate) pace: Duration,
    /// Writes to the socket in steps of so many bytes.
    pub(crate) step_bytes: Option<usize>,
    /// Waits between those steps.
    pub(crate) step_pace: Duration,
    /// Ends early.
    pub(crate) cut: Option<Cut>,
}

/// Where and how a reply ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The place.
    pub(crate) at: CutAt,
    /// The manner.
    pub(crate) how: CutHow,
}

/// Where a reply is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutAt {
    /// Not a byte is sent.
    Headers,
    /// After so many pieces of the body.
    Pieces(usize),
    /// After so many bytes of the body.
    Bytes(usize),
    /// All of the body is sent, but not the chunk that says so.
    End,
}

/// How a reply is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutHow {
    /// RST.
    Reset,
    /// FIN.
    Close,
    /// Silence for so long, then FIN.
    Hang(Duration),
}

/// Whether the caller got all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All; the connection can be used again.
    Whole,
    /// Not all, by plan or because the caller left; the connection is spent.
    Cut,
}

impl Reply {
    /// A body sent whole.
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            pieces: vec![body.into()],
            chunked: false,
            plan: Box::default(),
            ledger_entry: None,
            denied: false,
        }
    }

    /// Compact JSON.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json; charset=utf-8", body.to_string())
    }

    /// Plain text.
    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    /// No body at all.
    pub(crate) fn empty(status: u16) -> Self {
        Self {
            headers: Vec::new(),
            pieces: Vec::new(),
            ..Self::text(status, "")
        }
    }

    /// One more header.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn head(&self, head_only: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            let _infallible = write!(head, "{name}: {value}\r\n");
        }
        let bodiless = head_only || self.status == 204 || self.status == 304;
        if self.chunked && !bodiless {
            head.push_str("transfer-encoding: chunked\r\n");
        } else if !bodiless {
            let length: usize = self.pieces.iter().map(Vec::len).sum();
            let _infallible = write!(head, "content-length: {length}\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// Sends a reply by its plan.
pub(crate) async fn send(
    stream: &mut TcpStream,
    reply: &Reply,
    shared: &Shared,
    head_only: bool,
) -> Sent {
    match try_send(stream, reply, shared, head_only).await {
        Ok(sent) => sent,
        // The caller left: to the ledger that's the same as a cut.
        Err(_gone) => Sent::Cut,
    }
}

async fn try_send(
    stream: &mut TcpStream,
    reply: &Reply,
    shared: &Shared,
    head_only: bool,
) -> io::Result<Sent> {
    let plan = &reply.plan;
    if let Some(gate) = &plan.gate {
        shared.pass_gate(gate).await;
    }
    pause(stream, plan.delay).await?;
    if let Some(Cut {
        at: CutAt::Headers,
        how,
    }) = plan.cut
    {
        return end(stream, how).await;
    }
    write(stream, &reply.head(head_only), plan).await?;
    if head_only || reply.status == 204 || reply.status == 304 {
        return Ok(Sent::Whole);
    }
    send_body(stream, reply, shared).await
}

async fn send_body(stream: &mut TcpStream, reply: &Reply, shared: &Shared) -> io::Result<Sent> {
    let plan = &reply.plan;
    let mut bytes_left = match plan.cut {
        Some(Cut {
            at: CutAt::Bytes(bytes),
            ..
        }) => bytes,
        _ => usize::MAX,
    };
    for (index, piece) in reply
        .pieces
        .iter()
        .filter(|piece| !piece.is_empty())
        .enumerate()
    {
        if index > 0 {
            pause(stream, plan.pace).await?;
        }
        if let (1, Some(gate)) = (index, &plan.gate_mid) {
            shared.pass_gate(gate).await;
        }
        match plan.cut {
            Some(Cut {
                at: CutAt::Pieces(pieces),
                how,
            }) if pieces == index => {
                return end(stream, how).await;
            }
            _ => {}
        }
        let part = &piece[..piece.len().min(bytes_left)];
        write(stream, &framed(reply.chunked, piece.len(), part), plan).await?;
        bytes_left -= part.len();
        if bytes_left == 0 {
            break;
        }
    }
    if let Some(Cut { how, .. }) = plan.cut {
        return end(stream, how).await;
    }
    if reply.chunked {
        write(stream, b"0\r\n\r\n", plan).await?;
    }
    Ok(Sent::Whole)
}

/// The bytes for a piece; one that is cut announces its whole length all the same.
fn framed(chunked: bool, length: usize, part: &[u8]) -> Vec<u8> {
    if !chunked {
        return part.to_vec();
    }
    let mut bytes = format!("{length:x}\r\n").into_bytes();
    bytes.extend_from_slice(part);
    if part.len() == length {
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

async fn write(stream: &mut TcpStream, bytes: &[u8], plan: &Plan) -> io::Result<()> {
    let step_bytes = plan.step_bytes.unwrap_or(bytes.len()).max(1);
    for step in bytes.chunks(step_bytes) {
        stream.write_all(step).await?;
        if plan.step_bytes.is_some() {
            // Lets the reader run, so that it meets single bytes.
            tokio::task::yield_now().await;
            pause(stream, plan.step_pace).await?;
        }
    }
    Ok(())
}

/// Waits, unless the caller leaves first.
async fn pause(stream: &TcpStream, duration: Duration) -> io::Result<()> {
    if duration.is_zero() {
        return Ok(());
    }
    let mut byte = [0];
    let sleep = tokio::time::sleep(duration);
    tokio::pin!(sleep);
    tokio::select! {
        () = &mut sleep => Ok(()),
        peeked = stream.peek(&mut byte) => match peeked {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            // The caller's next request waits its turn.
            Ok(_) => { sleep.await; Ok(()) }
            Err(error) => Err(error),
        },
    }
}

async fn end(stream: &mut TcpStream, how: CutHow) -> io::Result<Sent> {
    match how {
        CutHow::Reset => {
            // What was written must reach the caller first: a reset overtakes nothing on the
            // loopback, but unsent bytes are thrown away.
            tokio::time::sleep(RESET_AFTER).await;
            stream.set_zero_linger()?;
        }
        CutHow::Close => stream.shutdown().await?,
        CutHow::Hang(duration) => {
            pause(stream, duration).await?;
            stream.shutdown().await?;
        }
    }
    Ok(Sent::Cut)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        410 => "Gone",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}

/// Long enough for the loopback to carry what was written, short enough not to be felt.
const RESET_AFTER: Duration = Duration::from_millis(30);
