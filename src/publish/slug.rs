//! Slugs: a target as the name of a post.

use super::Parcel;
use super::excerpt::cut;

/// The slug of a parcel's post: the same at every attempt, since it is how the post is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slug {
    pub(crate) text: String,
    /// It holds a part of the delivery's id, so that a post is recognised by its slug alone.
    pub(crate) keyed: bool,
}

impl Slug {
    /// Lower-case ASCII letters and digits joined by `-`.
    ///
    /// Where that loses letters, or leaves nothing or mere digits (which WordPress takes for a
    /// date), a part of the delivery's id is added. So it is where the text is long: recognising
    /// the post by the key in its text would then mean fetching all of it.
    pub(crate) fn of(parcel: &Parcel) -> Self {
        let mut text = String::new();
        for c in parcel.target.chars() {
            if c.is_ascii_alphanumeric() {
                text.push(c.to_ascii_lowercase());
            } else if !text.is_empty() && !text.ends_with('-') {
                text.push('-');
            }
        }
        let kept = cut(&text, SLUG_MAX_BYTES).trim_end_matches('-');
        let lossy = !parcel.target.is_ascii() || kept.len() < text.trim_end_matches('-').len();
        let nameless = kept
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
        let keyed = lossy || nameless || parcel.text.len() > UNKEYED_TEXT_MAX_BYTES;
        if !keyed {
            return Self {
                text: kept.to_owned(),
                keyed,
            };
        }
        let id = parcel.delivery_id.trim_start_matches("dlv_");
        let id: String = id
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(KEY_CHARS)
            .collect();
        let start = if kept.is_empty() { "post" } else { kept };
        Self {
            text: format!("{start}-{}", id.to_ascii_lowercase()),
            keyed,
        }
    }

    /// This slug and the first of those that a destination makes of it when it is taken.
    pub(crate) fn with_suffixed(&self) -> String {
        format!("{0},{0}-2,{0}-3", self.text)
    }
}

/// Ghost cuts at 185 and WordPress at 200 bytes; the key and a suffix need room.
const SLUG_MAX_BYTES: usize = 150;
/// 48 bits of a SHA-256: two deliveries for one target never share them by chance.
const KEY_CHARS: usize = 12;
/// A post of this size, escaped as JSON at its worst (threefold), is read whole in 1 MiB.
const UNKEYED_TEXT_MAX_BYTES: usize = 200_000;
