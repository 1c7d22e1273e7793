//! Excerpts: as much of a destination's answer as may be kept for people.

/// The start of `bytes` as text of at most `bytes_max` bytes, with `secrets` struck out.
///
/// It is cut at a character's boundary and the cut is marked; control characters become spaces.
///
/// ```
/// use oncepress::publish::excerpt::excerpt;
/// assert_eq!(excerpt("token s3cret!\nno".as_bytes(), 100, &["s3cret!"]), "token [secret] no");
/// assert_eq!(excerpt("日本語のエラー".as_bytes(), 10, &[]), "日本… (21 bytes)");
/// ```
pub fn excerpt(bytes: &[u8], bytes_max: usize, secrets: &[&str]) -> String {
    // A little more than asked for is read, so that no secret survives by lying across the cut.
    let longest = secrets.iter().map(|secret| secret.len()).max().unwrap_or(0);
    let read = bytes.len().min(bytes_max.saturating_add(longest));
    let mut text = String::from_utf8_lossy(bytes.get(..read).unwrap_or(bytes)).into_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, STRUCK_OUT);
    }
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.len() <= bytes_max && read == bytes.len() {
        return text;
    }
    let mark = format!("… ({} bytes)", bytes.len());
    format!(
        "{}{mark}",
        cut(&text, bytes_max.saturating_sub(MARK_BYTES)).trim_end()
    )
}

/// The longest start of `text` that has at most `bytes_max` bytes and cuts no character.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

const STRUCK_OUT: &str = "[secret]";
/// Room for the ellipsis; the byte count that follows it is not counted.
const MARK_BYTES: usize = "…".len();

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_secret_across_the_cut_is_struck_out() {
        let text = format!("{}hunter22{}", "x".repeat(16), "y".repeat(40));
        for bytes_max in 0..40 {
            let kept = excerpt(text.as_bytes(), bytes_max, &["hunter22"]);
            assert!(!kept.contains("hunter2"), "{bytes_max}: {kept}");
        }
    }

    #[test]
    fn a_short_text_is_kept_whole_and_a_broken_one_is_readable() {
        assert_eq!(excerpt(b"ok", 2, &[]), "ok");
        assert_eq!(excerpt(b"a\xffb", 10, &[]), "a\u{fffd}b");
        assert_eq!(excerpt(b"", 0, &[]), "");
    }

    proptest! {
        #[test]
        fn any_bytes_at_any_bound_give_text_that_is_no_longer_than_the_bound_and_its_mark(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), bytes_max in 0_usize..120,
        ) {
            let kept = excerpt(&bytes, bytes_max, &[]);
            prop_assert!(kept.len() <= bytes_max + "… (200 bytes)".len());
            prop_assert!(!kept.chars().any(char::is_control));
        }
    }
}
