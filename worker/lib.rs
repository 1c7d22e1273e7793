//! The module that Cloudflare runs: the events and the durable object of [`oncepress`].

#![forbid(unsafe_code)]

extern crate oncepress as _;
