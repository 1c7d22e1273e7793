//! Query strings: decoded strictly, bounded by the platform's limit of 16 KB for a URL.

/// The pairs of a query; `None` where a percent escape or its UTF-8 is broken.
pub fn pairs(query: &str) -> Option<Vec<(String, String)>> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

/// The value of a parameter, where it is given once.
pub fn value(query: &str, name: &str) -> Option<String> {
    let mut found = pairs(query)?.into_iter().filter(|(n, _)| n == name);
    let (_, value) = found.next()?;
    found.next().is_none().then_some(value)
}

/// Undoes percent encoding and `+`; `None` where it is broken.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high.checked_mul(16)?.checked_add(low)?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_broken_ones_refused() {
        assert_eq!(value("a=1&b=%E6%97%A5+x", "b").as_deref(), Some("日 x"));
        for broken in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert_eq!(pairs(broken), None, "{broken}");
        }
        assert_eq!(value("a=1&a=2", "a"), None);
    }
}
