//! Plain HTTP messages: what the routes take and give, with no server behind them.

use crate::ports::ByteSource;

/// An incoming request whose body has been read (and bounded) by the edge.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST`, … in capitals.
    pub method: String,
    /// The path, still percent-encoded, with its leading slash.
    pub path: String,
    /// The query without `?`, still percent-encoded.
    pub query: String,
    /// Header fields in order; names in lower case. A repeated field is repeated here.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header field that occurs once; `None` where it is missing or repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let (_, first) = found.next()?;
        found.next().is_none().then_some(first.as_str())
    }

    /// Every value of a header field.
    pub fn header_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }
}

/// The body of an answer.
pub enum Body {
    /// All of it.
    Bytes(Vec<u8>),
    /// Piece by piece.
    Stream(Box<dyn ByteSource>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl Response {
    /// An answer with a JSON body.
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![(
                "content-type".to_owned(),
                "application/json; charset=utf-8".to_owned(),
            )],
            body: Body::Bytes(body.into()),
        }
    }

    /// The same answer with one header field more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}
