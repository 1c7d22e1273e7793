//! Canonical JSON the slow way, written apart from the service: a document is read character by
//! character, numbers are lists of decimal digits with an exponent of any length, and what is
//! canonical is written down from those.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// Whole numbers of any length, with a sign, digit by digit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whole {
    negative: bool,
    /// The most significant digit first; no zero in front, none at all for 0.
    digits: Vec<u8>,
}

impl Whole {
    fn of(negative: bool, digits: &[u8]) -> Self {
        let start = digits.iter().position(|digit| *digit != 0);
        let digits = start.map_or_else(Vec::new, |start| digits[start..].to_vec());
        Self {
            negative: negative && !digits.is_empty(),
            digits,
        }
    }

    fn small(number: usize) -> Self {
        let digits: Vec<u8> = number.to_string().bytes().map(|byte| byte - b'0').collect();
        Self::of(false, &digits)
    }

    fn minus(&self, other: &Self) -> Self {
        let opposite = Self::of(!other.negative, &other.digits);
        self.plus(&opposite)
    }

    fn plus(&self, other: &Self) -> Self {
        if self.negative == other.negative {
            return Self::of(self.negative, &add(&self.digits, &other.digits));
        }
        if is_less(&self.digits, &other.digits) {
            return Self::of(other.negative, &subtract(&other.digits, &self.digits));
        }
        Self::of(self.negative, &subtract(&self.digits, &other.digits))
    }

    fn text(&self) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        let digits: String = self
            .digits
            .iter()
            .map(|digit| char::from(digit + b'0'))
            .collect();
        format!("{sign}{digits}")
    }
}

fn padded(digits: &[u8], length: usize) -> Vec<u8> {
    let mut all = vec![0; length - digits.len()];
    all.extend(digits);
    all
}

fn add(left: &[u8], right: &[u8]) -> Vec<u8> {
    let length = left.len().max(right.len()) + 1;
    let (left, right) = (padded(left, length), padded(right, length));
    let mut sum = vec![0; length];
    let mut carry = 0;
    for at in (0..length).rev() {
        let digit = left[at] + right[at] + carry;
        sum[at] = digit % 10;
        carry = digit / 10;
    }
    sum
}

/// The greater one first.
fn subtract(left: &[u8], right: &[u8]) -> Vec<u8> {
    let right = padded(right, left.len());
    let mut rest = left.to_vec();
    let mut borrow = 0;
    for at in (0..left.len()).rev() {
        let taken = right[at] + borrow;
        borrow = u8::from(left[at] < taken);
        rest[at] = left[at] + 10 * borrow - taken;
    }
    rest
}

fn is_less(left: &[u8], right: &[u8]) -> bool {
    (left.len(), left) < (right.len(), right)
}

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    /// Its canonical text.
    Number(String),
    Text(String),
    Array(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

/// Reads a document; `None` where it is none, or names a member twice.
pub fn read(bytes: &[u8]) -> Option<Value> {
    let text: Vec<char> = std::str::from_utf8(bytes).ok()?.chars().collect();
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    (reader.at == reader.text.len()).then_some(value)
}

struct Reader {
    text: Vec<char>,
    at: usize,
}

const DEPTH_MAX: usize = 128;

impl Reader {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn eat(&mut self, wanted: char) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        word.chars().try_for_each(|wanted| self.eat(wanted))?;
        Some(value)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.blanks();
        match self.peek()? {
            'n' => self.word("null", Value::Null),
            't' => self.word("true", Value::Bool(true)),
            'f' => self.word("false", Value::Bool(false)),
            '"' => self.string().map(Value::Text),
            '[' => self.array(depth + 1),
            '{' => self.object(depth + 1),
            _ => self.number().map(Value::Number),
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.eat('[')?;
        let mut all = Vec::new();
        self.blanks();
        if self.peek()? == ']' {
            self.at += 1;
            return Some(Value::Array(all));
        }
        loop {
            all.push(self.value(depth)?);
            self.blanks();
            match self.next()? {
                ',' => {}
                ']' => return Some(Value::Array(all)),
                _ => return None,
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.eat('{')?;
        let mut all = BTreeMap::new();
        self.blanks();
        if self.peek()? == '}' {
            self.at += 1;
            return Some(Value::Object(all));
        }
        loop {
            self.blanks();
            let name = self.string()?;
            self.blanks();
            self.eat(':')?;
            let value = self.value(depth)?;
            if all.insert(name, value).is_some() {
                return None;
            }
            self.blanks();
            match self.next()? {
                ',' => {}
                '}' => return Some(Value::Object(all)),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        self.eat('"')?;
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Some(text),
                '\\' => text.push(self.escape()?),
                plain if plain >= ' ' => text.push(plain),
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            '"' => '"',
            '\\' => '\\',
            '/' => '/',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let unit = self.unit()?;
                if (0xD800..0xDC00).contains(&unit) {
                    self.eat('\\')?;
                    self.eat('u')?;
                    let low = self.unit()?;
                    let pair = char::decode_utf16([unit, low]).collect::<Result<Vec<_>, _>>();
                    let pair = pair.ok().filter(|pair| pair.len() == 1)?;
                    pair[0]
                } else {
                    char::from_u32(u32::from(unit))?
                }
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.next()?.to_digit(16)?;
            unit = unit * 16 + u16::try_from(digit).ok()?;
        }
        Some(unit)
    }

    fn digits(&mut self) -> Vec<u8> {
        let mut digits = Vec::new();
        while let Some(digit) = self.peek().and_then(|next| next.to_digit(10)) {
            digits.push(u8::try_from(digit).unwrap());
            self.at += 1;
        }
        digits
    }

    fn number(&mut self) -> Option<String> {
        let negative = self.peek()? == '-';
        self.at += usize::from(negative);
        let mut digits = self.digits();
        if digits.is_empty() || digits.len() > 1 && digits[0] == 0 {
            return None;
        }
        let mut behind = 0;
        if self.peek() == Some('.') {
            self.at += 1;
            let fraction = self.digits();
            behind = fraction.len();
            digits.extend(fraction);
            if behind == 0 {
                return None;
            }
        }
        let mut exponent = Whole::small(0);
        if matches!(self.peek(), Some('e' | 'E')) {
            self.at += 1;
            let below = self.peek()? == '-';
            self.at += usize::from(matches!(self.peek()?, '-' | '+'));
            let given = self.digits();
            if given.is_empty() {
                return None;
            }
            exponent = Whole::of(below, &given);
        }
        let mut exponent = exponent.minus(&Whole::small(behind));
        let trailing = digits.iter().rev().take_while(|digit| **digit == 0).count();
        let kept = Whole::of(negative, &digits[..digits.len() - trailing]);
        if kept.digits.is_empty() {
            return Some("0".to_owned());
        }
        exponent = exponent.plus(&Whole::small(trailing));
        Some(match exponent.text().as_str() {
            "0" => kept.text(),
            exponent => format!("{}e{exponent}", kept.text()),
        })
    }
}

/// The canonical bytes.
pub fn write(value: &Value, into: &mut Vec<u8>) {
    let tag = |tag: char, length: usize| format!("{tag}{length}:").into_bytes();
    match value {
        Value::Null => into.push(b'n'),
        Value::Bool(true) => into.push(b't'),
        Value::Bool(false) => into.push(b'f'),
        Value::Number(decimal) => {
            into.extend(tag('d', decimal.len()));
            into.extend(decimal.as_bytes());
        }
        Value::Text(text) if text.len() > oncepress::key::limits::TEXT_IN_PLACE_MAX_BYTES => {
            into.extend(tag('h', text.len()));
            into.extend(Sha256::digest(text));
        }
        Value::Text(text) => {
            into.extend(tag('s', text.len()));
            into.extend(text.as_bytes());
        }
        Value::Array(elements) => {
            into.extend(tag('a', elements.len()));
            elements.iter().for_each(|element| write(element, into));
        }
        Value::Object(members) => {
            into.extend(tag('o', members.len()));
            for (name, value) in members {
                into.extend(tag('s', name.len()));
                into.extend(name.as_bytes());
                write(value, into);
            }
        }
    }
}
