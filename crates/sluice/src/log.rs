//! The log of the controller: its levels and encodings. Text from clusters, forges and repositories is escaped, so
//! that it cannot control the terminal that shows the log.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use sluice_cli::safe_text;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, FormatFields, Writer};

/// The lowest level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    /// Returns the directives for the filter. Libraries log less than Sluice itself: at debug, HTTP libraries log
    /// addresses, and the address of a webhook can be a secret; the Kubernetes client logs each failed call and
    /// each broken watch without the name of the cluster, and the controller logs these with the name.
    fn directives(self) -> &'static str {
        match self {
            Level::Trace => "trace,reqwest=info,hyper_util=info",
            Level::Debug => "debug,reqwest=info,hyper=info,rustls=info,tower=info",
            Level::Info => "info,kube_client=off,kube_runtime=error",
            Level::Warn => "warn,kube_client=off,kube_runtime=error",
            Level::Error => "error,kube_client=off",
        }
    }
}

/// The encoding of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    Json,
    Console,
}

/// Starts the log on stderr. The environment variable `RUST_LOG` has precedence over the level.
pub fn start(level: Level, encoding: Encoding) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.directives()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match encoding {
        Encoding::Json => builder.json().flatten_event(true).with_writer(|| SafeJson(io::stderr())).init(),
        // A file or a pipe gets no colors.
        Encoding::Console => {
            let colors = io::stderr().is_terminal();
            builder
                .with_target(false)
                .with_ansi(colors)
                .fmt_fields(SafeFields)
                .with_writer(io::stderr)
                .init();
        }
    }
}

/// Writes message and fields of a console line with the characters escaped that are unsafe on a terminal.
#[derive(Debug)]
struct SafeFields;

impl<'writer> FormatFields<'writer> for SafeFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&safe_text::line(&text))
    }
}

/// Escapes in JSON lines the characters that are unsafe on a terminal and that JSON does not escape itself:
/// DEL, C1 and format characters. Outside of strings JSON has none of them.
struct SafeJson<W>(W);

impl<W: Write> Write for SafeJson<W> {
    /// Writes a whole line: `tracing-subscriber` makes one call for each event.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(safe_text::json(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    const HOSTILE: &str =
        "down\n2026-11-22T10:00:00Z  INFO all is well \u{1b}[2K\u{9b}1A\u{202e}gnp.exe\u{7}\u{2028}x";

    fn log(subscriber: impl tracing::Subscriber + Send + Sync) {
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("cluster", name = HOSTILE);
            let _entered = span.enter();
            let error = io::Error::other(HOSTILE);
            tracing::warn!(message = HOSTILE, shown = %HOSTILE, text = HOSTILE, %error);
        });
    }

    #[test]
    fn console_lines_are_one_line_of_visible_characters() {
        let written = Written::default();
        let writer = written.clone();
        log(tracing_subscriber::fmt()
            .with_ansi(false)
            .fmt_fields(SafeFields)
            .with_writer(move || writer.clone())
            .finish());
        let text = written.text();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.chars().any(safe_text::is_unsafe), "{line:?}");
        assert_eq!(line.matches("\\u{9b}1A\\u{202e}gnp.exe").count(), 5, "{line}");
    }

    #[test]
    fn json_lines_are_escaped_and_parse_to_the_original_text() {
        let written = Written::default();
        let writer = written.clone();
        log(tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || SafeJson(writer.clone()))
            .finish());
        let text = written.text();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.chars().any(safe_text::is_unsafe), "{line:?}");
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&event["message"], &event["text"]), (&HOSTILE.into(), &HOSTILE.into()));
    }

    #[test]
    fn errors_of_the_kubernetes_client_are_not_logged() {
        for level in [Level::Info, Level::Warn, Level::Error] {
            let written = Written::default();
            let writer = written.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new(level.directives()))
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::error!(target: "kube_client::client::builder", "failed with error client error (Connect)");
                tracing::error!(target: "sluice_controller", "cluster apps/eu is lost");
            });
            let text = written.text();
            assert!(text.contains("apps/eu") && !text.contains("client error"), "{text}");
        }
    }

    #[test]
    fn each_level_is_a_valid_filter_with_that_level_as_default() {
        for level in [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error] {
            let name = level.to_possible_value().unwrap().get_name().to_owned();
            assert!(level.directives().starts_with(&name), "{name}");
            assert!(EnvFilter::try_new(level.directives()).is_ok());
        }
    }
}
