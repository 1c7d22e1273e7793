//! Models of KV, R2 and the isolate's cache, with their true weaknesses.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use oncepress::ports::Object;

use super::fate::Dice;

/// How KV shows what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Everywhere at once.
    Strong,
    /// Each location keeps what it saw, a missing value too, for 60 s.
    Cached,
    /// A read shows any state of the last 60 s.
    Any,
}

/// How long a location may show what is no longer true.
pub const STALE_MS: i64 = 60_000;
const TTL_MIN_MS: i64 = 60_000;

#[derive(Clone, Debug)]
struct Version {
    at: i64,
    value: Option<String>,
    expires_at: i64,
}

/// The key-value namespace.
pub struct Kv {
    pub sight: Cell<Sight>,
    pub down: Cell<bool>,
    pub writes_down: Cell<bool>,
    versions: RefCell<BTreeMap<String, Vec<Version>>>,
    seen: RefCell<BTreeMap<(u64, String), (Option<String>, i64)>>,
    dice: RefCell<Dice>,
}

impl Kv {
    pub fn new(seed: u64) -> Self {
        Self {
            sight: Cell::new(Sight::Strong),
            down: Cell::new(false),
            writes_down: Cell::new(false),
            versions: RefCell::default(),
            seen: RefCell::default(),
            dice: RefCell::new(Dice::new(seed ^ 0x4B56)),
        }
    }

    /// What the namespace itself holds.
    pub fn truth(&self, key: &str, now: i64) -> Option<String> {
        self.as_of(key, now, now)
    }

    fn as_of(&self, key: &str, at: i64, now: i64) -> Option<String> {
        let versions = self.versions.borrow();
        let mut known = versions.get(key)?.iter().rev();
        let version = known.find(|version| version.at <= at)?;
        version.value.clone().filter(|_| version.expires_at > now)
    }

    pub fn get(&self, location: u64, key: &str, now: i64) -> Option<String> {
        let slot = (location, key.to_owned());
        let kept = self.seen.borrow().get(&slot).cloned();
        let kept = kept.filter(|(_, at)| now - at < STALE_MS);
        match (self.sight.get(), kept) {
            (Sight::Strong, _) => self.truth(key, now),
            (Sight::Cached, Some((value, _))) => value,
            (Sight::Cached, None) => {
                let value = self.truth(key, now);
                self.seen.borrow_mut().insert(slot, (value.clone(), now));
                value
            }
            (Sight::Any, _) => {
                let back = self.dice.borrow_mut().below(2 * STALE_MS.unsigned_abs());
                let back = i64::try_from(back).unwrap();
                // Half of the reads show the truth.
                let back = if back >= STALE_MS { 0 } else { back };
                self.as_of(key, now - back, now)
            }
        }
    }

    pub fn put(
        &self,
        location: u64,
        key: &str,
        value: Option<String>,
        ttl_ms: Option<i64>,
        now: i64,
    ) -> Result<(), String> {
        if ttl_ms.is_some_and(|ttl| ttl < TTL_MIN_MS) {
            return Err("400: Expiration TTL must be at least 60.".to_owned());
        }
        if key.is_empty() || key.len() > 512 {
            return Err("414: the key is too long".to_owned());
        }
        let mut versions = self.versions.borrow_mut();
        let known = versions.entry(key.to_owned()).or_default();
        if value.is_some() && known.last().is_some_and(|last| now - last.at < 1_000) {
            return Err("KV PUT failed: 429 Too Many Requests".to_owned());
        }
        known.push(Version {
            at: now,
            value: value.clone(),
            expires_at: ttl_ms.map_or(i64::MAX, |ttl| now + ttl),
        });
        let mut seen = self.seen.borrow_mut();
        seen.insert((location, key.to_owned()), (value, now));
        Ok(())
    }

    pub fn list(&self, prefix: &str, now: i64) -> Vec<String> {
        let versions = self.versions.borrow();
        let names = versions.keys().filter(|key| key.starts_with(prefix));
        names
            .filter(|key| self.truth(key, now).is_some())
            .take(100)
            .cloned()
            .collect()
    }

    /// Every value that is there now.
    pub fn values(&self, now: i64) -> Vec<(String, String)> {
        let versions = self.versions.borrow();
        let pairs = versions
            .keys()
            .filter_map(|key| Some((key.clone(), self.truth(key, now)?)));
        pairs.collect()
    }
}

/// The bucket.
#[derive(Default)]
pub struct R2 {
    pub down: Cell<bool>,
    pub objects: RefCell<BTreeMap<String, Object>>,
}

impl R2 {
    pub fn list(&self, prefix: &str) -> Vec<String> {
        let objects = self.objects.borrow();
        let names = objects.keys().filter(|key| key.starts_with(prefix));
        names.take(100).cloned().collect()
    }
}

/// One isolate's memory.
#[derive(Default)]
pub struct Memory(RefCell<BTreeMap<String, (String, i64)>>);

impl Memory {
    const ENTRIES_MAX: usize = 64;

    pub fn get(&self, key: &str, now: i64) -> Option<String> {
        let entries = self.0.borrow();
        let (value, expires_at) = entries.get(key)?;
        (now < *expires_at).then(|| value.clone())
    }

    pub fn put(&self, key: &str, value: &str, expires_at: i64) {
        let mut entries = self.0.borrow_mut();
        entries.insert(key.to_owned(), (value.to_owned(), expires_at));
        while entries.len() > Self::ENTRIES_MAX {
            let soonest = entries.iter().min_by_key(|(_, (_, at))| *at);
            let soonest = soonest.map(|(key, _)| key.clone()).unwrap();
            entries.remove(&soonest);
        }
    }

    pub fn remove(&self, key: &str) {
        self.0.borrow_mut().remove(key);
    }

    pub fn dump(&self) -> String {
        format!("{:?}", self.0.borrow())
    }
}
