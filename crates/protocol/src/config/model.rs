//! One `[models.KEY]` of a file, as the spec of a model.

use super::error::{ConfigError, ConfigErrorKind, secret_in_file, unknown_key};
use super::field::{Field, is_secret_name};
use super::tree::{Entry, Value, place};
use crate::job::{EmptyContent, ModelSpec, Provider};
use crate::limits;
use crate::status::ThinkingMode;

/// What may stand in a model's section.
const KNOWN: &[&str] = &[
    "provider",
    "base_url",
    "model",
    "api_key_env",
    "max_output_tokens",
    "context_tokens",
    "stream",
    "send_reasoning",
    "vision",
    "empty_content",
    "thinking_mode",
    "thinking",
    "headers",
    "body",
    "timeouts",
    "price_prompt",
    "price_completion",
    "price_cached",
];

/// Reads one model.
///
/// # Errors
/// When a key is unknown or would hold a secret, a value is not allowed, or what is necessary is
/// missing.
pub(super) fn read_model(section: &Entry, file: &str) -> Result<ModelSpec, ConfigError> {
    let here = place(file, section.line);
    let path = format!("models.{}", section.key);
    check_key(&section.key, &here)?;
    let Value::Table(entries) = &section.value else {
        return Err(ConfigError::new(
            ConfigErrorKind::WrongType,
            format!("`{path}` must be a section, not {}", section.value.kind()),
        )
        .at(&here)
        .hint("each model has a section `[models.KEY]` of its own"));
    };
    let mut reading = Reading {
        spec: ModelSpec::new(&section.key, Provider::Openai, "", ""),
        provider: None,
    };
    for entry in entries {
        let field = Field {
            path: format!("{path}.{}", entry.key),
            at: place(file, entry.line),
            value: &entry.value,
        };
        reading.take(&entry.key, &field, file)?;
    }
    let lacks = |key: &str, hint: &str| {
        Err(ConfigError::new(
            ConfigErrorKind::OutOfRange,
            format!("`{path}` lacks `{key}`"),
        )
        .at(&here)
        .hint(hint))
    };
    let Some(provider) = reading.provider else {
        return lacks("provider", "provider = \"openai\" fits most servers");
    };
    let mut spec = reading.spec;
    spec.provider = provider;
    if spec.model.is_empty() {
        return lacks(
            "model",
            "the model's name at its provider; for a script its file",
        );
    }
    if spec.base_url.is_empty() && provider != Provider::Script {
        return lacks(
            "base_url",
            "for example base_url = \"http://127.0.0.1:11434/v1\"",
        );
    }
    Ok(spec)
}

/// A key must not look like the other two ways to name a model.
fn check_key(key: &str, at: &str) -> Result<(), ConfigError> {
    let fits = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    let good = !key.is_empty()
        && key.chars().count() <= limits::MODEL_KEY_CHARS_MAX
        && key.chars().all(fits)
        && !key.contains("://")
        && !key.starts_with("script:");
    if good {
        return Ok(());
    }
    Err(ConfigError::new(
        ConfigErrorKind::OutOfRange,
        format!(
            "the key of a model must be 1 to {} letters, digits, `_`, `-`, `.`, `:` or `/`, and no \
             URL",
            limits::MODEL_KEY_CHARS_MAX
        ),
    )
    .at(at))
}

struct Reading {
    spec: ModelSpec,
    provider: Option<Provider>,
}

impl Reading {
    fn take(&mut self, key: &str, field: &Field<'_>, file: &str) -> Result<(), ConfigError> {
        let spec = &mut self.spec;
        match key {
            "provider" => {
                self.provider = Some(field.word(&[
                    ("openai", Provider::Openai),
                    ("anthropic", Provider::Anthropic),
                    ("script", Provider::Script),
                ])?);
            }
            "base_url" => spec.base_url = field.base_url()?,
            "model" => spec.model = field.text()?.to_owned(),
            "api_key_env" => spec.api_key_env = Some(field.variable_name()?),
            "max_output_tokens" => spec.max_output_tokens = Some(field.tokens()?),
            "context_tokens" => spec.context_tokens = Some(field.tokens()?),
            "stream" => spec.stream = field.switch()?,
            "send_reasoning" => spec.send_reasoning = field.switch()?,
            "vision" => spec.vision = field.switch()?,
            "empty_content" => {
                spec.empty_content =
                    field.word(&[("null", EmptyContent::Null), ("empty", EmptyContent::Empty)])?;
            }
            "thinking_mode" => spec.thinking_mode = Some(field.word(THINKING_WORDS)?),
            "thinking" => spec.thinking = field.thinking(file)?,
            "headers" => spec.headers = field.headers(file)?,
            "body" => spec.body = field.body(file)?,
            "timeouts" => spec.timeouts = field.timeouts(file)?,
            "price_prompt" => spec.price_prompt = Some(field.price()?),
            "price_completion" => spec.price_completion = Some(field.price()?),
            "price_cached" => spec.price_cached = Some(field.price()?),
            secret if is_secret_name(secret) => {
                return Err(secret_in_file(&field.path, &field.at));
            }
            _ => return Err(unknown_key(&field.path, &field.at, KNOWN)),
        }
        Ok(())
    }
}

const THINKING_WORDS: &[(&str, ThinkingMode)] = &[
    ("fast", ThinkingMode::Fast),
    ("thinking", ThinkingMode::Thinking),
];
