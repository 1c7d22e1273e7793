//! Clock, randomness, time zones, telemetry, the rate limiter, and work after the answer.

use std::rc::Rc;

use worker::Delay;
use worker::js_sys::{Array, Date, Function, Reflect, global};
use worker::wasm_bindgen::{JsCast, JsValue};

use super::js::{Binding, ask, call, get, object, parsed, some};
use crate::app::Background;
use crate::ports::{Clock, Random, RateLimiter, Task, Telemetry, Zones};
use crate::time::{Span, Timestamp};

/// The platform's clock and dice.
pub(super) struct Host;

impl Clock for Host {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "milliseconds since 1970 are whole"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(Date::now() as i64)
    }

    fn sleep(&self, span: Span) -> Task<'_, ()> {
        let ms = u64::try_from(span.millis()).unwrap_or(0);
        Box::pin(async move { Delay::from(std::time::Duration::from_millis(ms)).await })
    }
}

impl Random for Host {
    fn bytes16(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        // `crypto.getRandomValues` fails for more than 65,536 bytes only.
        let _ = getrandom::fill(&mut bytes);
        bytes
    }
}

impl Zones for Host {
    fn offset_minutes(&self, zone: &str, at: Timestamp) -> Option<i32> {
        if zone == "UTC" {
            return Some(0);
        }
        parse_offset(&long_offset(zone, at)?)
    }
}

/// What `Intl` calls the zone's offset at that moment: `GMT`, `GMT+09:00`, `GMT-03:30`.
#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds are exact in a double"
)]
fn long_offset(zone: &str, at: Timestamp) -> Option<String> {
    let class: Function = get(&get(&global(), "Intl"), "DateTimeFormat")
        .dyn_into()
        .ok()?;
    let options = object(&[
        ("timeZone", zone.into()),
        ("timeZoneName", "longOffset".into()),
    ]);
    // An unknown zone throws.
    let format = Reflect::construct(&class, &Array::of2(&"en-US".into(), &options)).ok()?;
    let date = Date::new(&JsValue::from_f64(at.millis() as f64));
    let text = call(&format, "format", &[date.into()]).ok()?.as_string()?;
    text.rsplit_once("GMT").map(|(_, offset)| offset.to_owned())
}

fn parse_offset(text: &str) -> Option<i32> {
    if text.is_empty() {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-" | "\u{2212}", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let minutes = minutes.get(..2).unwrap_or(minutes);
    let hours: i32 = hours.parse().ok()?;
    let minutes: i32 = minutes.parse().ok()?;
    hours
        .checked_mul(60)?
        .checked_add(minutes)?
        .checked_mul(sign)
}

/// Log lines on the console, data points in Analytics Engine where that is bound.
pub(super) struct Log(pub(super) Binding);

impl Telemetry for Log {
    fn log(&self, line: &str) {
        worker::console_log!("{line}");
    }

    fn point(&self, index: &str, blobs: &[&str], doubles: &[f64]) {
        let Some(dataset) = some(self.0.value()) else {
            return;
        };
        let point = serde_json::json!({"indexes": [index], "blobs": blobs, "doubles": doubles});
        let point = parsed(&point);
        // A data point that is not taken is a figure less, nothing more.
        let _ = call(&dataset, "writeDataPoint", &[point]);
    }
}

/// The rate limiter bound as `RATE_LIMIT`.
pub(super) struct Limiter(pub(super) Binding);

impl RateLimiter for Limiter {
    fn allow<'a>(&'a self, key: &'a str) -> Task<'a, bool> {
        Box::pin(async move {
            let Some(limiter) = some(self.0.value()) else {
                return true;
            };
            // A limiter that fails lets the request pass.
            let asked = object(&[("key", key.into())]);
            let answer = ask(&limiter, "limit", &[asked]).await;
            answer.map_or(true, |answer| get(&answer, "success").is_truthy())
        })
    }
}

/// `waitUntil` of whatever event is being handled.
pub(super) struct WaitUntil(pub(super) Rc<dyn Fn(Task<'static, ()>)>);

impl Background for WaitUntil {
    fn spawn(&self, task: Task<'static, ()>) {
        (self.0)(task);
    }
}
