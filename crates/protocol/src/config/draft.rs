//! The settings while the layers are laid over each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::{ConfigError, ConfigErrorKind};
use super::keys::{Key, NUMBERS, RETENTION_NUMBERS, Setting};
use super::settings::{
    Admission, LanguageChoice, LimitSettings, RequiredRung, RetentionSettings, Settings,
    max_live_default,
};
use super::trust::Wish;
use crate::job::ModelSpec;
use crate::limits;
use crate::mcp::McpServerSpec;
use crate::web::WebSpec;

/// Who set a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    /// The user's file, a workspace's that the user accepted, a variable or a flag.
    Person,
    /// The workspace's file.
    Workspace,
}

#[derive(Debug, Clone)]
struct Held {
    setting: Setting,
    source: String,
    author: Author,
}

/// What is set so far; what is not in it is built in.
#[derive(Debug, Default)]
pub(super) struct Draft {
    values: BTreeMap<String, Held>,
    pub(super) models: BTreeMap<String, (ModelSpec, String)>,
    /// The web, and who set it.
    pub(super) web: Option<(WebSpec, String)>,
    /// MCP servers by name, and who set each.
    servers: BTreeMap<String, (McpServerSpec, String)>,
    warnings: Vec<String>,
    /// What a workspace's file does not get. What holds instead is filled in last.
    pub(super) wishes: Vec<Wish>,
}

impl Draft {
    /// Takes a person's value.
    pub(super) fn set(&mut self, key: Key, setting: Setting, source: &str) {
        self.hold(key, setting, source, Author::Person);
    }

    /// Takes a person's model.
    pub(super) fn set_model(&mut self, spec: ModelSpec, source: &str) {
        self.models
            .insert(spec.key.clone(), (spec, source.to_owned()));
    }

    /// Takes a person's web.
    pub(super) fn set_web(&mut self, web: WebSpec, source: &str) {
        self.web = Some((web, source.to_owned()));
    }

    /// Takes a person's MCP server.
    pub(super) fn set_server(&mut self, server: McpServerSpec, source: &str) {
        self.servers
            .insert(server.name.clone(), (server, source.to_owned()));
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Takes a workspace's value if it is tighter than what holds, and warns if it is looser.
    /// `wanted` is the value as TOML.
    pub(super) fn tighten(&mut self, key: Key, setting: Setting, wanted: &str, source: &str) {
        let (verdict, holds) = self.compare(&setting);
        match verdict {
            Verdict::Take => self.hold(key, setting, source, Author::Workspace),
            Verdict::Same => {}
            Verdict::Looser => {
                self.wish(key.path(), source.to_owned(), wanted.to_owned());
                let from = self.source(&key.path());
                self.warn(format!(
                    "{source}: `{}` is ignored: a workspace's file may only tighten it, and it is \
                     {holds} already ({from})",
                    key.path()
                ));
            }
            Verdict::NotItsBusiness => {
                self.wish(key.path(), source.to_owned(), wanted.to_owned());
                self.warn(ignored(&key.path(), source));
            }
        }
    }

    fn compare(&self, setting: &Setting) -> (Verdict, String) {
        match setting {
            Setting::Language(_) => (Verdict::Take, String::new()),
            Setting::DefaultModel(_)
            | Setting::PromptsDir(_)
            | Setting::Highest(_)
            | Setting::Cgroup(_)
            // Sooner is not tighter here: it removes what a person may still want to read.
            | Setting::Retention(..)
            | Setting::EnvAllow(_) => (Verdict::NotItsBusiness, String::new()),
            Setting::Admission(new) => {
                let holds = self.admission();
                let verdict = match (holds, *new) {
                    (Admission::Queue, Admission::Reject) => Verdict::Take,
                    (Admission::Reject, Admission::Queue) => Verdict::Looser,
                    (Admission::Reject, Admission::Reject)
                    | (Admission::Queue, Admission::Queue) => Verdict::Same,
                };
                (verdict, format!("\"{holds}\""))
            }
            Setting::Require(new) => {
                let holds = self.require();
                (order(holds.cmp(new)), format!("\"{holds}\""))
            }
            Setting::Write(new) => {
                let holds = self.write();
                (order(holds.cmp(new)), format!("\"{holds}\""))
            }
            Setting::Network(new) => {
                let holds = self.network();
                (order(holds.cmp(new)), format!("\"{holds}\""))
            }
            Setting::Git(new) => {
                let holds = self.git();
                (order(holds.cmp(new)), format!("\"{holds}\""))
            }
            // It only ever grows.
            Setting::SecretPaths(_) => (Verdict::Take, String::new()),
            Setting::Cap(name, new) => match self.cap(name) {
                None => (Verdict::Take, String::new()),
                Some(holds) => (order(new.cmp(&holds)), holds.to_string()),
            },
            Setting::Number(name, new) => match self.number(name) {
                None => (Verdict::Take, String::new()),
                Some(holds) => (order(new.cmp(&holds)), holds.to_string()),
            },
        }
    }

    fn hold(&mut self, key: Key, setting: Setting, source: &str, author: Author) {
        let setting = match setting {
            Setting::SecretPaths(more) => Setting::SecretPaths(self.with_secrets(more)),
            other => other,
        };
        let held = Held {
            setting,
            source: source.to_owned(),
            author,
        };
        self.values.insert(key.path(), held);
    }

    pub(super) fn source(&self, path: &str) -> String {
        self.values
            .get(path)
            .map_or_else(|| "built-in".to_owned(), |held| held.source.clone())
    }

    fn author(&self, path: &str) -> Option<Author> {
        self.values.get(path).map(|held| held.author)
    }

    pub(super) fn setting(&self, path: &str) -> Option<&Setting> {
        self.values.get(path).map(|held| &held.setting)
    }

    pub(super) fn language(&self) -> LanguageChoice {
        match self.setting("language") {
            Some(Setting::Language(language)) => *language,
            _ => LanguageChoice::Auto,
        }
    }

    pub(super) fn admission(&self) -> Admission {
        match self.setting("limits.admission") {
            Some(Setting::Admission(admission)) => *admission,
            _ => Admission::Reject,
        }
    }

    pub(super) fn require(&self) -> RequiredRung {
        match self.setting("confinement.require") {
            Some(Setting::Require(require)) => *require,
            _ => RequiredRung::None,
        }
    }

    pub(super) fn highest(&self) -> RequiredRung {
        match self.setting("confinement.highest") {
            Some(Setting::Highest(highest)) => *highest,
            _ => RequiredRung::Cgroup2,
        }
    }

    pub(super) fn cap(&self, name: &str) -> Option<u64> {
        match self.setting(&format!("confinement.{name}")) {
            Some(Setting::Cap(_, value)) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        match self.setting(path) {
            Some(
                Setting::DefaultModel(text) | Setting::PromptsDir(text) | Setting::Cgroup(text),
            ) => Some(text.clone()),
            _ => None,
        }
    }

    /// A number as it holds; none is no limit.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        if let Some(Setting::Number(_, value)) = self.setting(&format!("limits.{name}")) {
            return Some(*value);
        }
        let key = NUMBERS.iter().find(|key| key.name == name)?;
        match (key.default, name) {
            (Some(default), _) => Some(default),
            (None, "max_live") => self.number("max_concurrent").map(max_live_default),
            (None, "timeout_seconds_min") => self
                .number("timeout_seconds_max")
                .map(|max| max.min(u64::from(limits::TIMEOUT_SECONDS_MIN))),
            (None, _) => None,
        }
    }

    /// A number of `[retention]`.
    pub(super) fn retention(&self, name: &str) -> u32 {
        let held = match self.setting(&format!("retention.{name}")) {
            Some(Setting::Retention(_, value)) => Some(*value),
            _ => RETENTION_NUMBERS
                .iter()
                .find(|key| key.name == name)
                .and_then(|key| key.default),
        };
        held.and_then(|number| u32::try_from(number).ok())
            .expect("keys.rs gives it a default and a range of 32 bits; a test reads each one")
    }

    /// Makes `low` no greater than `high`. Where a workspace's file is the cause, or nobody set
    /// `low`, it follows; between two values of a person it is not known which one is meant.
    fn settle(&mut self, low: &'static str, high: &'static str) -> Result<(), ConfigError> {
        let (Some(least), Some(most)) = (self.number(low), self.number(high)) else {
            return Ok(());
        };
        if least <= most {
            return Ok(());
        }
        let (low_path, high_path) = (format!("limits.{low}"), format!("limits.{high}"));
        let by_workspace = [&low_path, &high_path]
            .into_iter()
            .any(|path| self.author(path) == Some(Author::Workspace));
        if by_workspace || self.author(&low_path).is_none() {
            let source = self.source(&high_path);
            let key = NUMBERS.iter().find(|key| key.name == low).map(Key::Number);
            if let Some(key) = key {
                self.hold(key, Setting::Number(low, most), &source, Author::Workspace);
            }
            return Ok(());
        }
        let place = if self.author(&high_path).is_some() {
            self.source(&high_path)
        } else {
            self.source(&low_path)
        };
        Err(ConfigError::new(
            ConfigErrorKind::Conflict,
            format!("`{low_path}` is {least} and `{high_path}` is {most}"),
        )
        .at(&place)
        .hint(format!("`{low}` must not be greater than `{high}`")))
    }

    /// What is required must be allowed to be tried. A workspace's file may be the one that
    /// requires it: its strictness is then not met, which is an error all the same.
    fn check_rungs(&self) -> Result<(), ConfigError> {
        let (require, highest) = (self.require(), self.highest());
        if require <= highest {
            return Ok(());
        }
        Err(ConfigError::new(
            ConfigErrorKind::Conflict,
            format!(
                "`confinement.require` is \"{require}\" and `confinement.highest` is \"{highest}\""
            ),
        )
        .at(&self.source("confinement.highest"))
        .hint("`require` must not be above `highest`"))
    }

    /// The settings.
    ///
    /// # Errors
    /// When two values of a person can't hold together.
    pub(super) fn finish(mut self) -> Result<Settings, ConfigError> {
        self.settle("timeout_seconds_min", "timeout_seconds_max")?;
        self.settle("max_concurrent", "max_live")?;
        self.check_rungs()?;
        let limits = LimitSettings {
            max_concurrent: self.small("max_concurrent"),
            max_live: self.small("max_live"),
            timeout_seconds_min: self.small("timeout_seconds_min"),
            timeout_seconds_max: self.small("timeout_seconds_max"),
            start_timeout_seconds: self.small("start_timeout_seconds"),
            max_total_per_run: self
                .number("max_total_per_run")
                .and_then(|number| u32::try_from(number).ok()),
            max_total_tokens: self.number("max_total_tokens"),
            admission: self.admission(),
            queue_timeout_seconds: self.small("queue_timeout_seconds"),
            grace_seconds: self.small("grace_seconds"),
            idle_timeout_seconds: self.small("idle_timeout_seconds"),
            answer_timeout_seconds: self.small("answer_timeout_seconds"),
            result_bytes: self.small("result_bytes"),
        };
        let mut sources: BTreeMap<String, String> = Key::all()
            .map(|key| (key.path(), self.source(&key.path())))
            .collect();
        let mut models = BTreeMap::new();
        for (key, (spec, source)) in std::mem::take(&mut self.models) {
            sources.insert(format!("models.{key}"), source);
            models.insert(key, spec);
        }
        let web = std::mem::take(&mut self.web).map(|(web, source)| {
            sources.insert("web".to_owned(), source);
            web
        });
        let mut mcp = Vec::new();
        for (name, (server, source)) in std::mem::take(&mut self.servers) {
            sources.insert(format!("mcp.servers.{name}"), source);
            mcp.push(server);
        }
        Ok(Settings {
            language: self.language(),
            default_model: self.text("default_model"),
            prompts_dir: self.text("prompts_dir").map(PathBuf::from),
            limits,
            models,
            web,
            mcp,
            require: self.require(),
            highest: self.highest(),
            cgroup: self.text("confinement.cgroup").map(PathBuf::from),
            retention: RetentionSettings {
                days: self.retention("days"),
                runs: self.retention("runs"),
            },
            write: self.write(),
            network: self.network(),
            git: self.git(),
            secret_paths: self.with_secrets(Vec::new()),
            memory: self.cap("memory"),
            cpu_seconds: self.cap("cpu_seconds"),
            disk: self.cap("disk"),
            env_allow: self.env_allow(),
            warnings: self.warnings,
            sources,
        })
    }

    /// A number that has a default and a range within 32 bits.
    fn small(&self, name: &str) -> u32 {
        self.number(name)
            .and_then(|number| u32::try_from(number).ok())
            .expect("keys.rs gives it a default and a range of 32 bits; a test reads each one")
    }
}

enum Verdict {
    Take,
    Same,
    Looser,
    NotItsBusiness,
}

fn order(order: std::cmp::Ordering) -> Verdict {
    match order {
        std::cmp::Ordering::Less => Verdict::Take,
        std::cmp::Ordering::Equal => Verdict::Same,
        std::cmp::Ordering::Greater => Verdict::Looser,
    }
}

/// What is said of a key that a workspace's file may not set.
pub(super) fn ignored(key: &str, place: &str) -> String {
    format!(
        "{place}: `{key}` is ignored: a workspace's file may only choose the language and tighten \
         limits and confinement; put it into your own file"
    )
}
