//! Whatever a destination answers, an attempt ends, soon and without a panic.

use oncepress::ports::{HttpError, Object, PutNew};
use oncepress::publish::{Outcome, Reply, Step};
use proptest::prelude::*;

use crate::destination::settings;
use crate::driver::delivery;
use crate::suite::{ALL, TARGET};

fn any_reply() -> impl Strategy<Value = Reply> {
    let status = prop_oneof![
        4 => prop_oneof![Just(200_u16), Just(201), Just(204)],
        2 => prop_oneof![Just(404_u16), Just(409), Just(410), Just(422), Just(501)],
        1 => any::<u16>(),
    ];
    let header = prop_oneof![
        Just(("retry-after", "9e99")),
        Just(("retry-after", "60")),
        Just(("x-ratelimit-remaining", "0")),
        Just(("x-ratelimit-reset", "99999999999999999999")),
    ];
    let headers = proptest::collection::vec(header, 0..3);
    let http = (status, headers, any_body()).prop_map(|(status, headers, body)| Reply::Http {
        status,
        headers: headers
            .into_iter()
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .collect(),
        body,
    });
    prop_oneof![
        12 => http,
        1 => Just(Reply::HttpFailed(HttpError::TimedOut)),
        1 => Just(Reply::Put(PutNew::Exists)),
        1 => Just(Reply::Object(None)),
        1 => Just(Reply::Object(Some(Object::default()))),
        1 => Just(Reply::Sent),
        1 => Just(Reply::Failed("down".to_owned())),
    ]
}

/// Bodies that lead as deep into every publisher as a mischievous destination could.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let slug = prop_oneof![
        Just(TARGET.to_owned()),
        Just(format!("{TARGET}-2")),
        Just("x".to_owned())
    ];
    let status = prop_oneof![
        Just("draft"),
        Just("publish"),
        Just("published"),
        Just("trash")
    ];
    let mark = prop_oneof![
        Just("<!-- oncepress:dlv_0123456789abcdef0123456789abcdef -->"),
        Just("")
    ];
    let post = (0..4_u32, slug, status, mark).prop_map(|(id, slug, status, mark)| {
        serde_json::json!({ "id": id, "slug": slug, "status": status, "link": "l",
            "content": { "raw": mark } })
        .to_string()
    });
    let ghost = |post: String| post.replace(r#""id":"#, r#""id":"1","n":"#);
    let list = proptest::collection::vec(post.clone(), 0..3).prop_map(|posts| posts.join(","));
    prop_oneof![
        post.clone(),
        list.clone().prop_map(|posts| format!("[{posts}]")),
        post.prop_map(move |post| format!(r#"{{"posts":[{}]}}"#, ghost(post))),
        list.prop_map(move |posts| format!(r#"{{"posts":[{}]}}"#, ghost(posts))),
        Just(
            r#"{"message":"Invalid request.\n\n\"sha\" wasn't supplied.","sha":"abc"}"#.to_owned()
        ),
        Just("[]".to_owned()),
        ".{0,40}",
    ]
    .prop_map(String::into_bytes)
}

proptest! {
    #[test]
    fn any_replies_in_any_order_end_an_attempt_within_twenty_effects(
        kind in 0..ALL.len(),
        maybe_sent in any::<bool>(),
        progress in proptest::option::of("[0-9]|\\PC{0,9}"),
        replies in proptest::collection::vec(any_reply(), 20),
    ) {
        let settings = settings(((ALL[kind]).new)().as_ref());
        let mut delivery = delivery(&settings, TARGET);
        delivery.parcel.maybe_sent = maybe_sent;
        delivery.parcel.progress = progress;
        let mut publication = settings.begin(delivery.parcel.clone());
        let mut step = publication.step(None, delivery.now);
        for reply in replies {
            match step {
                Step::Do(_) => step = publication.step(Some(reply), delivery.now),
                Step::Done(_) => break,
            }
        }
        let Step::Done(outcome) = step else { panic!("{} goes on for ever", ALL[kind].name) };
        if maybe_sent {
            prop_assert!(!matches!(outcome, Outcome::Transient(_)), "what is open stays open");
        }
    }
}
