//! `fakes --port P [--state FILE]`: stand-ins for Gemini and the destinations, on 127.0.0.1 only.
//!
//! Prints `{"ready":true,"port":…}` once it listens; port 0 means any. See README.md beside it.

#[cfg(not(target_arch = "wasm32"))]
#[path = "mod.rs"]
mod fakes;

#[cfg(not(target_arch = "wasm32"))]
fn main() -> std::process::ExitCode {
    match command::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(problem) => command::fail(&problem),
    }
}

#[cfg(target_arch = "wasm32")]
fn main() {}

#[cfg(not(target_arch = "wasm32"))]
mod command {
    #![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks")]

    use std::path::PathBuf;
    use std::process::ExitCode;

    /// Reads the arguments, listens, and serves until the process is ended.
    pub(crate) fn run() -> Result<(), String> {
        let (port, state_file) = arguments(std::env::args().skip(1))?;
        let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let fakes = crate::fakes::start(port, state_file.as_deref())
                .await
                .map_err(|error| format!("cannot start: {error}"))?;
            println!("{{\"ready\":true,\"port\":{}}}", fakes.port());
            // Serves until the process is ended.
            std::future::pending().await
        })
    }

    /// Says what was wrong and how the command is used.
    pub(crate) fn fail(problem: &str) -> ExitCode {
        eprintln!("{problem}\nusage: fakes --port P [--state FILE]");
        ExitCode::from(2)
    }

    fn arguments(
        mut words: impl Iterator<Item = String>,
    ) -> Result<(u16, Option<PathBuf>), String> {
        let (mut port, mut state_file) = (None, None);
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--port" => port = Some(value.parse().map_err(|_| format!("not a port: {value}"))?),
                "--state" => state_file = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown argument: {word}")),
            }
        }
        Ok((port.ok_or("--port is missing")?, state_file))
    }
}
