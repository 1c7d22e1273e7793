//! KV as the key-value port.

use worker::js_sys::Array;
use worker::wasm_bindgen::JsValue;

use super::js::{Binding, ask, get, message, object, text};
use crate::ports::{KeyValue, KvError, Task};
use crate::time::Span;

/// The namespace bound as `KV_DEDUP`.
pub(super) struct Kv(pub(super) Binding);

impl Kv {
    async fn ask(&self, method: &str, args: &[JsValue]) -> Result<JsValue, KvError> {
        let answer = ask(&self.0.value(), method, args).await;
        // KV's texts name the call and a status, never a value.
        answer.map_err(|error| KvError(message(&error)))
    }
}

impl KeyValue for Kv {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<String>, KvError>> {
        Box::pin(async move {
            let found = self.ask("get", &[key.into(), "text".into()]).await?;
            Ok(found.as_string())
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        value: String,
        ttl: Option<Span>,
    ) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move {
            let ttl = ttl.map(|ttl| u32::try_from(ttl.seconds_up().max(60)).unwrap_or(u32::MAX));
            let options = match ttl {
                Some(seconds) => object(&[("expirationTtl", seconds.into())]),
                None => object(&[]),
            };
            let args = [key.into(), value.into(), options];
            self.ask("put", &args).await.map(|_| ())
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move { self.ask("delete", &[key.into()]).await.map(|_| ()) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, KvError>> {
        Box::pin(async move {
            let options = object(&[("prefix", prefix.into()), ("limit", 100.into())]);
            let page = self.ask("list", &[options]).await?;
            let keys = Array::from(&get(&page, "keys"));
            Ok(keys.iter().filter_map(|key| text(&key, "name")).collect())
        })
    }
}
