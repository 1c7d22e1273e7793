//! KV as the key-value port.

use worker::KvStore;

use crate::ports::{KeyValue, KvError, Task};
use crate::time::Span;

/// The namespace bound as `KV_DEDUP`.
pub(super) struct Kv(pub(super) KvStore);

impl KeyValue for Kv {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<String>, KvError>> {
        Box::pin(async move { self.0.get(key).text().await.map_err(|error| failed(&error)) })
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        value: String,
        ttl: Option<Span>,
    ) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move {
            let put = self.0.put(key, value).map_err(|error| failed(&error))?;
            let put = match ttl {
                Some(ttl) => put.expiration_ttl(ttl.seconds_up().max(60)),
                None => put,
            };
            put.execute().await.map_err(|error| failed(&error))
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move { self.0.delete(key).await.map_err(|error| failed(&error)) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, KvError>> {
        Box::pin(async move {
            let page = self
                .0
                .list()
                .prefix(prefix.to_owned())
                .limit(100)
                .execute()
                .await;
            let page = page.map_err(|error| failed(&error))?;
            Ok(page.keys.into_iter().map(|key| key.name).collect())
        })
    }
}

/// The error's text, cut: KV's texts name the call and a status, never a value.
fn failed(error: &worker::KvError) -> KvError {
    KvError(error.to_string().chars().take(200).collect())
}
