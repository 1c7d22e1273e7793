//! The isolate's memory: a `Map` on `globalThis`, which outlives a restart of the WebAssembly
//! instance after a panic. Bounded in entries and in characters; the oldest go first.

use std::cell::RefCell;

use worker::js_sys::{JsString, Map, Reflect, global};
use worker::wasm_bindgen::{JsCast, JsValue};

use crate::ports::IsolateCache;
use crate::time::Timestamp;

thread_local! {
    /// The map, found once by each WebAssembly instance.
    static MAP: RefCell<Option<Map>> = const { RefCell::new(None) };
}

/// The cache. An entry is one string, so that it crosses from JavaScript at once: when it expires,
/// in milliseconds, a space, and the text.
pub(super) struct Isolate;

impl IsolateCache for Isolate {
    fn get(&self, key: &str, now: Timestamp) -> Option<String> {
        let map = map()?;
        let name = JsValue::from_str(key);
        let mut entry = map.get(&name).as_string()?;
        let space = entry.find(' ')?;
        let expires_at: i64 = entry.get(..space)?.parse().ok()?;
        if expires_at <= now.millis() {
            forget(&map, &name);
            return None;
        }
        entry.drain(..=space);
        Some(entry)
    }

    fn put(&self, key: &str, value: &str, expires_at: Timestamp) {
        let Some(map) = map() else { return };
        let name = JsValue::from_str(key);
        forget(&map, &name);
        let entry = JsValue::from(format!("{} {value}", expires_at.millis()));
        map.set(&name, &entry);
        let mut held = held(&map) + length(&entry);
        while map.size() > ENTRIES_MAX || held > CHARS_MAX {
            let Ok(oldest) = map.keys().next() else { break };
            held -= forget(&map, &oldest.value());
        }
        keep_held(&map, held);
    }

    fn remove(&self, key: &str) {
        if let Some(map) = map() {
            forget(&map, &JsValue::from_str(key));
        }
    }
}

fn map() -> Option<Map> {
    MAP.with_borrow_mut(|known| {
        if known.is_none() {
            *known = found_or_made();
        }
        known.clone()
    })
}

fn found_or_made() -> Option<Map> {
    let name = JsValue::from_str(NAME);
    let known = Reflect::get(&global(), &name).ok()?;
    if let Ok(map) = known.dyn_into::<Map>() {
        return Some(map);
    }
    let map = Map::new();
    Reflect::set(&global(), &name, &map).ok()?;
    Some(map)
}

/// Drops an entry; gives the characters it held, which are taken off the map's sum.
fn forget(map: &Map, name: &JsValue) -> f64 {
    let entry = map.get(name);
    if !map.delete(name) {
        return 0.0;
    }
    let length = length(&entry);
    keep_held(map, held(map) - length);
    length
}

fn length(entry: &JsValue) -> f64 {
    entry
        .dyn_ref::<JsString>()
        .map_or(0.0, |text| f64::from(text.length()))
}

fn held(map: &Map) -> f64 {
    Reflect::get(map, &JsValue::from_str(HELD))
        .ok()
        .and_then(|n| n.as_f64())
        .unwrap_or(0.0)
}

fn keep_held(map: &Map, held: f64) {
    // Where the sum can't be kept, the bound on entries still holds.
    let _ = Reflect::set(
        map,
        &JsValue::from_str(HELD),
        &JsValue::from_f64(held.max(0.0)),
    );
}

const NAME: &str = "__oncepress_cache";
const HELD: &str = "held";
const ENTRIES_MAX: u32 = 2_000;
/// 16 Mi characters are 16 to 32 MiB of an isolate's 128.
const CHARS_MAX: f64 = 16_777_216.0;
