//! The section `[web]` of a file.

use super::error::{ConfigError, ConfigErrorKind, secret_in_file, unknown_key};
use super::field::{Field, is_secret_name};
use super::tree::{Entry, place};
use crate::limits;
use crate::web::{Engine, SearchSpec, WebSpec};

/// What may stand in it.
const KNOWN: &[&str] = &["search", "base_url", "api_key_env", "pages", "allow_hosts"];
/// Where Tavily answers.
const TAVILY: &str = "https://api.tavily.com";

/// Reads the section. Pages may be read unless it says otherwise.
///
/// # Errors
/// When a key is unknown or would hold a secret, a value is not allowed, or an engine lacks its
/// address.
pub(super) fn read_web(entries: &[Entry], file: &str, at: &str) -> Result<WebSpec, ConfigError> {
    let mut web = WebSpec {
        pages: true,
        ..WebSpec::default()
    };
    let mut engine = None;
    let mut base_url = None;
    let mut api_key_env = None;
    for entry in entries {
        let field = Field {
            path: format!("web.{}", entry.key),
            at: place(file, entry.line),
            value: &entry.value,
        };
        match entry.key.as_str() {
            "search" => {
                let words: Vec<(&str, Engine)> = Engine::ALL
                    .iter()
                    .map(|engine| (engine.as_str(), *engine))
                    .collect();
                engine = Some(field.word(&words)?);
            }
            "base_url" => base_url = Some(field.base_url()?),
            "api_key_env" => api_key_env = Some(field.variable_name()?),
            "pages" => web.pages = field.switch()?,
            "allow_hosts" => web.allow_hosts = field.hosts()?,
            secret if is_secret_name(secret) => {
                return Err(secret_in_file(&field.path, &field.at));
            }
            _ => return Err(unknown_key(&field.path, &field.at, KNOWN)),
        }
    }
    let lacks = |message: &str, hint: &str| {
        Err(ConfigError::new(ConfigErrorKind::OutOfRange, message)
            .at(at)
            .hint(hint))
    };
    let base_url = match (engine, base_url) {
        (Some(Engine::Tavily), None) => Some(TAVILY.to_owned()),
        (Some(Engine::Searxng), None) => {
            return lacks(
                "`web` lacks `base_url`",
                "for example base_url = \"http://127.0.0.1:8888\"",
            );
        }
        (None, Some(_)) => {
            return lacks("`web` lacks `search`", "for example search = \"searxng\"");
        }
        (_, base_url) => base_url,
    };
    web.search = engine.zip(base_url).map(|(engine, base_url)| SearchSpec {
        engine,
        base_url,
        api_key_env,
    });
    Ok(web)
}

impl Field<'_> {
    /// Names or numbers of hosts, without scheme, port or path.
    fn hosts(&self) -> Result<Vec<String>, ConfigError> {
        let rule = "a list of hosts, such as [\"docs.internal\", \"10.0.0.7\"]";
        let hosts = self.texts(rule, limits::WEB_ALLOW_HOSTS_MAX)?;
        let is_host = |host: &String| {
            !host.is_empty()
                && host
                    .chars()
                    .all(|c| c.is_alphanumeric() || "-._:[]".contains(c))
        };
        match hosts.iter().all(is_host) {
            true => Ok(hosts),
            false => Err(self.wrong(ConfigErrorKind::OutOfRange, rule)),
        }
    }
}
