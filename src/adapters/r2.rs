//! R2 as the object port.

use std::collections::HashMap;

use worker::{Bucket, Conditional, HttpMetadata};

use crate::ports::{Object, ObjectError, Objects, PutNew, Task};

/// The bucket bound as `BUCKET`.
pub(super) struct R2(pub(super) Bucket);

impl R2 {
    async fn put_with(
        &self,
        key: &str,
        object: Object,
        only_if: Option<Conditional>,
    ) -> Result<bool, ObjectError> {
        let metadata: HashMap<String, String> = object.metadata.into_iter().collect();
        let http = HttpMetadata {
            content_type: Some(object.content_type),
            ..Default::default()
        };
        let mut put = self
            .0
            .put(key, object.bytes)
            .http_metadata(http)
            .custom_metadata(metadata);
        if let Some(only_if) = only_if {
            put = put.only_if(only_if);
        }
        put.execute()
            .await
            .map(|stored| stored.is_some())
            .map_err(|error| failed(&error))
    }
}

impl Objects for R2 {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<Object>, ObjectError>> {
        Box::pin(async move {
            let found = self
                .0
                .get(key)
                .execute()
                .await
                .map_err(|error| failed(&error))?;
            let Some(found) = found else { return Ok(None) };
            let metadata = found.custom_metadata().map_err(|error| failed(&error))?;
            let content_type = found.http_metadata().content_type.unwrap_or_default();
            let bytes = match found.body() {
                Some(body) => body.bytes().await.map_err(|error| failed(&error))?,
                None => Vec::new(),
            };
            let mut metadata: Vec<(String, String)> = metadata.into_iter().collect();
            metadata.sort();
            Ok(Some(Object {
                bytes,
                content_type,
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
            let absent = Conditional {
                etag_matches: None,
                etag_does_not_match: Some("*".to_owned()),
                uploaded_before: None,
                uploaded_after: None,
            };
            let created = self.put_with(key, object, Some(absent)).await?;
            Ok(if created {
                PutNew::Created
            } else {
                PutNew::Exists
            })
        })
    }

    fn put<'a>(&'a self, key: &'a str, object: Object) -> Task<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.put_with(key, object, None).await.map(|_| ()) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.0.delete(key).await.map_err(|error| failed(&error)) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, ObjectError>> {
        Box::pin(async move {
            let page = self.0.list().prefix(prefix).limit(100).execute().await;
            let page = page.map_err(|error| failed(&error))?;
            Ok(page.objects().iter().map(worker::Object::key).collect())
        })
    }
}

fn failed(error: &worker::Error) -> ObjectError {
    ObjectError(error.to_string().chars().take(200).collect())
}
