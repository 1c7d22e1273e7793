//! R2 as the object port.

use worker::js_sys::{Array, Object as JsObject, Uint8Array};
use worker::wasm_bindgen::{JsCast, JsValue};

use super::js::{Binding, ask, get, message, object, some, text};
use crate::ports::{Object, ObjectError, Objects, PutNew, Task};
use crate::sorted::sort_by;

/// The bucket bound as `BUCKET`.
pub(super) struct R2(pub(super) Binding);

impl R2 {
    async fn ask(&self, method: &str, args: &[JsValue]) -> Result<JsValue, ObjectError> {
        let answer = ask(&self.0.value(), method, args).await;
        answer.map_err(|error| failed(&error))
    }

    /// Puts an object; `false` where the condition does not hold.
    async fn put_with(
        &self,
        key: &str,
        put: Object,
        only_if: JsValue,
    ) -> Result<bool, ObjectError> {
        let metadata = put.metadata.iter();
        let metadata: Vec<(&str, JsValue)> = metadata
            .map(|(name, value)| (name.as_str(), value.into()))
            .collect();
        let options = object(&[
            (
                "httpMetadata",
                object(&[("contentType", put.content_type.into())]),
            ),
            ("customMetadata", object(&metadata)),
            ("onlyIf", only_if),
        ]);
        let bytes = Uint8Array::from(put.bytes.as_slice()).into();
        let stored = self.ask("put", &[key.into(), bytes, options]).await?;
        Ok(some(stored).is_some())
    }
}

impl Objects for R2 {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<Object>, ObjectError>> {
        Box::pin(async move {
            let Some(found) = some(self.ask("get", &[key.into()]).await?) else {
                return Ok(None);
            };
            let bytes = ask(&found, "arrayBuffer", &[]).await;
            let bytes = bytes.map_err(|error| failed(&error))?;
            let custom = get(&found, "customMetadata").dyn_into::<JsObject>();
            let custom = custom.map_or_else(|_| Array::new(), |custom| JsObject::entries(&custom));
            let mut metadata = Vec::new();
            for pair in custom.iter() {
                let pair = Array::from(&pair);
                let texts = (pair.get(0).as_string(), pair.get(1).as_string());
                if let (Some(name), Some(value)) = texts {
                    metadata.push((name, value));
                }
            }
            sort_by(&mut metadata, Ord::cmp);
            Ok(Some(Object {
                bytes: Uint8Array::new(&bytes).to_vec(),
                content_type: text(&get(&found, "httpMetadata"), "contentType").unwrap_or_default(),
                metadata,
            }))
        })
    }

    fn put_new<'a>(
        &'a self,
        key: &'a str,
        object: Object,
    ) -> Task<'a, Result<PutNew, ObjectError>> {
        Box::pin(async move {
            let absent = super::js::object(&[("etagDoesNotMatch", "*".into())]);
            let created = self.put_with(key, object, absent).await?;
            Ok(if created {
                PutNew::Created
            } else {
                PutNew::Exists
            })
        })
    }

    fn put<'a>(&'a self, key: &'a str, object: Object) -> Task<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            let put = self.put_with(key, object, JsValue::UNDEFINED).await;
            put.map(|_| ())
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.ask("delete", &[key.into()]).await.map(|_| ()) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, ObjectError>> {
        Box::pin(async move {
            let options = object(&[("prefix", prefix.into()), ("limit", 100.into())]);
            let page = self.ask("list", &[options]).await?;
            let objects = Array::from(&get(&page, "objects"));
            Ok(objects.iter().filter_map(|it| text(&it, "key")).collect())
        })
    }
}

fn failed(error: &JsValue) -> ObjectError {
    ObjectError(message(error))
}
