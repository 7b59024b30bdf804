//! What the leader logs to stderr about its own decisions.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::args::GlobalArgs;

/// Begins to log, once per process. `RUST_LOG` decides where it is set and can be read; else the
/// command line does.
pub fn begin(global: &GlobalArgs, rust_log: Option<&str>) {
    let filter = filter(global, rust_log);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false);
    // A second call in one process, which only tests make, keeps the first.
    tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .try_init()
        .ok();
}

fn filter(global: &GlobalArgs, rust_log: Option<&str>) -> Targets {
    if let Some(targets) = rust_log
        .filter(|text| !text.trim().is_empty())
        .and_then(|text| text.parse::<Targets>().ok())
    {
        return targets;
    }
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, 2) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    Targets::new().with_default(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(quiet: bool, verbose: u8, rust_log: Option<&str>) -> Option<LevelFilter> {
        let global = GlobalArgs {
            quiet,
            verbose,
            directory: None,
        };
        filter(&global, rust_log).default_level()
    }

    #[test]
    fn the_variable_decides_before_the_command_line() {
        assert_eq!(level(false, 0, None), Some(LevelFilter::WARN));
        assert_eq!(level(true, 0, None), Some(LevelFilter::ERROR));
        assert_eq!(level(false, 1, Some("")), Some(LevelFilter::INFO));
        assert_eq!(level(false, 2, None), Some(LevelFilter::DEBUG));
        assert_eq!(level(false, 9, None), Some(LevelFilter::TRACE));
        assert_eq!(level(true, 0, Some("debug")), Some(LevelFilter::DEBUG));
        assert_eq!(level(false, 1, Some("=?=")), Some(LevelFilter::INFO));
    }
}
