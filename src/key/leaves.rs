//! A digest per leaf of a request: enough to say which fields another request changed, when the
//! request itself is long gone, and not enough to read any of them.

use std::borrow::Cow;

use crate::sorted::{SortedSet, sort_unstable_by};
use std::collections::VecDeque;

use sha2::{Digest as _, Sha256};

use super::canonical::{Canonical, Sink};
use super::json::Json;
use super::limits::{CONFLICT_POINTERS_MAX, LEAVES_MAX, LEAVES_POINTERS_MAX_BYTES};
use super::pointer::escape;
use super::scope::Name;

/// The leaves of one request: pointer and digest, sorted.
///
/// A leaf is a scalar or an empty array or object. A request with very many of them is kept
/// coarser: an array or object that would not fit any more is one leaf. Account and pointer are
/// part of each digest, so equal values of two accounts, or of two fields, do not look alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves(Vec<(String, String)>);

impl Leaves {
    /// Takes the leaves of some values, each under its pointer.
    pub(super) fn of(account: &Name, roots: Vec<(String, &Canonical<'_>)>) -> Self {
        let digest = |(pointer, value): (String, &Canonical<'_>)| {
            let digest = digest(account, &pointer, value);
            (pointer, digest)
        };
        let mut leaves: Vec<_> = unfold(roots).into_iter().map(digest).collect();
        sort_unstable_by(&mut leaves, Ord::cmp);
        Self(leaves)
    }

    /// The pointers where two requests differ, sorted, at most 20: those of changed leaves, and of
    /// leaves that only one of them has. Where one of them was kept coarser, or has a value in
    /// place of an object, it is the outer pointer; an empty one means the whole request.
    pub fn diff(&self, other: &Self) -> Vec<String> {
        let (ours, theirs) = (self.counted(), other.counted());
        let (of_ours, of_theirs) = (ours.iter(), theirs.iter());
        let gone = of_ours.filter(|leaf| theirs.binary_search(leaf).is_err());
        let new = of_theirs.filter(|leaf| ours.binary_search(leaf).is_err());
        let apart = gone.chain(new);
        let pointers: SortedSet<&str> = apart.map(|((pointer, _), _)| pointer.as_str()).collect();
        let enclosed = |pointer: &str| {
            let mut ends = pointer.rmatch_indices('/').map(|(end, _)| end);
            ends.any(|end| {
                pointer
                    .get(..end)
                    .is_some_and(|outer| pointers.contains(outer))
            })
        };
        let outermost = pointers.iter().filter(|pointer| !enclosed(pointer));
        outermost
            .take(CONFLICT_POINTERS_MAX)
            .map(|pointer| (*pointer).to_owned())
            .collect()
    }

    /// The leaves as JSON, to be stored.
    pub fn to_json(&self) -> String {
        let pair = |(pointer, digest): &(String, String)| {
            Json::Array(vec![pointer.as_str().into(), digest.as_str().into()])
        };
        let leaves = Json::Array(self.0.iter().map(pair).collect());
        Json::Object(vec![
            ("version".to_owned(), VERSION.into()),
            ("leaves".to_owned(), leaves),
        ])
        .write()
    }

    /// Reads what [`Leaves::to_json`] wrote; `None` if it is anything else, or of another version.
    pub fn from_json(text: &str) -> Option<Self> {
        let json = Json::parse(text.as_bytes()).ok()?;
        if json.get("version")?.as_number()?.to_i64() != Some(VERSION) {
            return None;
        }
        let pair = |pair: &Json| match pair.as_array()? {
            [pointer, digest] => Some((pointer.as_str()?.to_owned(), digest.as_str()?.to_owned())),
            _ => None,
        };
        json.get("leaves")?
            .as_array()?
            .iter()
            .map(pair)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The leaves: pointer and digest, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(pointer, digest)| (pointer.as_str(), digest.as_str()))
    }

    /// The leaves, each with how many equal ones come before it: a header and a member of the body
    /// may have one pointer and one value. They are in order, as the leaves are.
    fn counted(&self) -> Vec<(&(String, String), usize)> {
        let mut before = (None, 0_usize);
        let count = |leaf| {
            let repeats = if before.0 == Some(leaf) {
                before.1.saturating_add(1)
            } else {
                0
            };
            before = (Some(leaf), repeats);
            (leaf, repeats)
        };
        self.0.iter().map(count).collect()
    }
}

/// Opens arrays and objects, level by level, as long as their values fit.
fn unfold<'a>(roots: Vec<(String, &'a Canonical<'a>)>) -> Vec<(String, &'a Canonical<'a>)> {
    let mut bytes: usize = roots.iter().map(|(pointer, _)| pointer.len()).sum();
    let mut queue = VecDeque::from(roots);
    let mut leaves = Vec::new();
    while let Some((pointer, value)) = queue.pop_front() {
        let count = value.children();
        let total = leaves
            .len()
            .saturating_add(queue.len())
            .saturating_add(count);
        let inner = if total > LEAVES_MAX {
            Vec::new()
        } else {
            inside(&pointer, value)
        };
        let grown = inner
            .iter()
            .fold(bytes, |sum, (pointer, _)| sum.saturating_add(pointer.len()));
        if inner.is_empty() || grown > LEAVES_POINTERS_MAX_BYTES {
            leaves.push((pointer, value));
        } else {
            bytes = grown.saturating_sub(pointer.len());
            queue.extend(inner);
        }
    }
    leaves
}

/// The values in an array or object, with their pointers.
fn inside<'a>(pointer: &str, value: &'a Canonical<'a>) -> Vec<(String, &'a Canonical<'a>)> {
    let below = |token: Cow<'_, str>| format!("{pointer}/{token}");
    match value {
        Canonical::Array(elements) => {
            let elements = elements.iter().enumerate();
            elements
                .map(|(at, value)| (below(at.to_string().into()), value))
                .collect()
        }
        Canonical::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| (below(escape(name).into()), value))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn digest(account: &Name, pointer: &str, value: &Canonical<'_>) -> String {
    let mut sha = Sha256::new();
    sha.put(LABEL);
    Canonical::text(account.as_str()).write(&mut sha);
    Canonical::text(pointer).write(&mut sha);
    value.write(&mut sha);
    hex::encode(sha.finalize().get(..DIGEST_BYTES).unwrap_or_default())
}

/// Leads the bytes of every leaf, so that no other digest of this service equals one.
const LABEL: &[u8] = b"oncepress-leaf-1\n";
/// Changes with anything that changes a leaf's digest.
const VERSION: i64 = 1;
/// Two different values of one field look alike once in 2^64: it only serves a message.
const DIGEST_BYTES: usize = 8;

#[cfg(test)]
mod tests;
