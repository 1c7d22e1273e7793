//! Reads requests off a socket: HTTP/1.1, with a length or chunked, kept alive.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One request, read whole.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The method, in capitals.
    pub(crate) method: String,
    /// The path as sent, without the query.
    pub(crate) path: String,
    /// Query members in order, decoded.
    pub(crate) query: Vec<(String, String)>,
    /// Headers in order, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body's bytes.
    pub(crate) body: Vec<u8>,
    /// Whether the caller means to use the connection again.
    pub(crate) keep_alive: bool,
}

impl Request {
    /// The first header of that (lower case) name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first query member of that name.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// The next request of a connection; `None` where the caller closed it instead.
pub(crate) async fn read_request(
    stream: &mut TcpStream,
    unread: &mut Vec<u8>,
) -> io::Result<Option<Request>> {
    let (mut request, head_len) = loop {
        match parse_head(unread)? {
            Some(found) => break found,
            None if unread.len() > HEAD_BYTES_MAX => return Err(bad("head too long")),
            None if !more(stream, unread).await? => return Ok(None),
            None => {}
        }
    };
    unread.drain(..head_len);
    if request
        .header("expect")
        .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    request.body = if request.header("transfer-encoding").is_some() {
        read_chunks(stream, unread).await?
    } else {
        let length = request.header("content-length").map_or(Ok(0), str::parse);
        let length: usize = length.map_err(|_| bad("content-length"))?;
        take(stream, unread, length).await?
    };
    Ok(Some(request))
}

/// Decodes `%XX`; anything else stays as it is.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let pair = tail
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse_head(unread: &[u8]) -> io::Result<Option<(Request, usize)>> {
    let mut slots = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Request::new(&mut slots);
    let parsed = head
        .parse(unread)
        .map_err(|error| bad(&error.to_string()))?;
    let httparse::Status::Complete(head_len) = parsed else {
        return Ok(None);
    };
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|header| (header.name.to_ascii_lowercase(), text(header.value)))
        .collect();
    let close = headers
        .iter()
        .any(|(name, value)| name == "connection" && value.eq_ignore_ascii_case("close"));
    let request = Request {
        method: head.method.unwrap_or("GET").to_owned(),
        path: path.to_owned(),
        query: parse_query(query),
        headers,
        body: Vec::new(),
        keep_alive: head.version == Some(1) && !close,
    };
    Ok(Some((request, head_len)))
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode(&text.replace('+', " "));
    query
        .split('&')
        .filter(|member| !member.is_empty())
        .map(|member| member.split_once('=').unwrap_or((member, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

async fn read_chunks(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let (line_len, size) = loop {
            match httparse::parse_chunk_size(unread).map_err(|_| bad("chunk size"))? {
                httparse::Status::Complete(found) => break found,
                httparse::Status::Partial => {
                    if !more(stream, unread).await? {
                        return Err(bad("cut in a chunk"));
                    }
                }
            }
        };
        unread.drain(..line_len);
        let size = usize::try_from(size).map_err(|_| bad("chunk size"))?;
        body.extend(take(stream, unread, size).await?);
        take(stream, unread, 2).await?;
        if size == 0 {
            return Ok(body);
        }
    }
}

async fn take(stream: &mut TcpStream, unread: &mut Vec<u8>, length: usize) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(bad("body too long"));
    }
    while unread.len() < length {
        if !more(stream, unread).await? {
            return Err(bad("cut in the body"));
        }
    }
    Ok(unread.drain(..length).collect())
}

/// Reads once; false where the caller closed the connection.
async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<bool> {
    Ok(stream.read_buf(unread).await? > 0)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A head longer than this is a caller's mistake.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// More than the 20 MB Gemini takes, so that its refusal and not ours is what a test meets.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
