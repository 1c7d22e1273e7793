//! Gemini: what is sent to it, what it answers, and what that costs. Bytes in, bytes out.

pub mod answer;
pub mod bounds;
mod delay;
pub mod error;
pub mod exchange;
pub mod fitness;
pub mod google;
pub mod lenient;
pub mod merge;
pub mod price;
pub mod price_list;
mod redact;
pub mod request;
mod splitter;
pub mod sse;
pub mod usage;
