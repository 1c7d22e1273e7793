//! The Worker's side: ports on Cloudflare's bindings. Compiled for wasm32 only; nothing else in the
//! crate names `worker` or JavaScript.

mod d1;
mod entry;
mod fetch;
mod host;
mod isolate;
mod js;
mod kv;
mod queues;
mod r2;
mod runner;
mod settings;
