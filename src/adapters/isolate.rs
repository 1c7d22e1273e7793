//! The isolate's memory: a `Map` on `globalThis`, which outlives a restart of the WebAssembly
//! instance after a panic. Bounded in entries and in characters; the oldest go first.

use worker::js_sys::{Array, JsString, Map, Reflect, global};
use worker::wasm_bindgen::{JsCast, JsValue};

use crate::ports::IsolateCache;
use crate::time::Timestamp;

/// The cache.
pub(super) struct Isolate;

impl Isolate {
    fn map() -> Option<Map> {
        let name = JsValue::from_str(NAME);
        let known = Reflect::get(&global(), &name).ok()?;
        if let Ok(map) = known.dyn_into::<Map>() {
            return Some(map);
        }
        let map = Map::new();
        Reflect::set(&global(), &name, &map).ok()?;
        Some(map)
    }
}

impl IsolateCache for Isolate {
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds are exact in a double"
    )]
    fn get(&self, key: &str, now: Timestamp) -> Option<String> {
        let map = Self::map()?;
        let name = JsValue::from_str(key);
        let entry = map.get(&name).dyn_into::<Array>().ok()?;
        if entry.get(0).as_f64()? <= now.millis() as f64 {
            forget(&map, &name);
            return None;
        }
        entry.get(1).as_string()
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds are exact in a double"
    )]
    fn put(&self, key: &str, value: &str, expires_at: Timestamp) {
        let Some(map) = Self::map() else { return };
        let name = JsValue::from_str(key);
        forget(&map, &name);
        let text = JsValue::from_str(value);
        let entry = Array::of2(&JsValue::from_f64(expires_at.millis() as f64), &text);
        map.set(&name, &entry);
        let mut held = held(&map) + weight(&entry);
        while map.size() > ENTRIES_MAX || held > CHARS_MAX {
            let Ok(oldest) = map.keys().next() else { break };
            held -= forget(&map, &oldest.value());
        }
        keep_held(&map, held);
    }

    fn remove(&self, key: &str) {
        if let Some(map) = Self::map() {
            forget(&map, &JsValue::from_str(key));
        }
    }
}

/// Drops an entry; gives the characters it held, which are taken off the map's sum.
fn forget(map: &Map, name: &JsValue) -> f64 {
    let Ok(entry) = map.get(name).dyn_into::<Array>() else {
        return 0.0;
    };
    map.delete(name);
    let weight = weight(&entry);
    keep_held(map, held(map) - weight);
    weight
}

fn weight(entry: &Array) -> f64 {
    let text = entry.get(1);
    Reflect::get(&text, &JsValue::from_str("length"))
        .ok()
        .and_then(|length| length.as_f64())
        .unwrap_or_else(|| {
            text.dyn_ref::<JsString>()
                .map_or(0.0, |text| f64::from(text.length()))
        })
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
