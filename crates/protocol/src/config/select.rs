//! Which model an agent uses, and where the key for it is.

use super::error::{ConfigError, ConfigErrorKind};
use super::field::check_base_url;
use super::settings::Settings;
use crate::error::closest;
use crate::job::{ModelSpec, Provider};

/// Looks a variable up.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The beginning of a choice that names a file of replies.
const SCRIPT: &str = "script:";
/// Holds the key for a server that is named on the command line and is none of the known ones.
const OWN_KEY: &str = "MUSTER_API_KEY";
/// What to do when there is no model.
const THREE_WAYS: &str = "three ways to go on:
  1. export OPENAI_API_KEY (or DEEPSEEK_API_KEY, DASHSCOPE_API_KEY, MOONSHOT_API_KEY, \
ZHIPUAI_API_KEY, OPENROUTER_API_KEY)
  2. name a server: --model http://127.0.0.1:11434/v1#MODEL
  3. put a [models.KEY] with provider, base_url, model and api_key_env into your muster.toml";

/// A provider that is known by its variables `{name}_API_KEY`, `{name}_BASE_URL`, `{name}_MODEL`.
struct Known {
    name: &'static str,
    base_url: &'static str,
    model: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "OPENAI",
        base_url: "https://api.openai.com/v1",
        model: "gpt-5-mini",
    },
    Known {
        name: "DEEPSEEK",
        base_url: "https://api.deepseek.com/v1",
        model: "deepseek-chat",
    },
    Known {
        name: "DASHSCOPE",
        base_url: "https://dashscope.aliyuncs.com/compatible-mode/v1",
        model: "qwen-plus",
    },
    Known {
        name: "MOONSHOT",
        base_url: "https://api.moonshot.cn/v1",
        model: "kimi-latest",
    },
    Known {
        name: "ZHIPUAI",
        base_url: "https://open.bigmodel.cn/api/paas/v4",
        model: "glm-4.6",
    },
    Known {
        name: "OPENROUTER",
        base_url: "https://openrouter.ai/api/v1",
        model: "openrouter/auto",
    },
];

/// The model that a person chose: a key of `[models]`, `URL#NAME` or `script:FILE`; without a
/// choice `default_model`, else the only configured one, else one from the environment.
///
/// A choice that a model made goes through [`model_by_key`] instead: with a URL it could send a
/// key, or the workspace, to a server of its own.
///
/// # Errors
/// When the choice is unknown or malformed, several models are configured and none is the
/// default, the model's provider is not available, or no model is configured
/// ([`ConfigError::is_no_model`]).
pub fn select_model(
    settings: &Settings,
    wanted: Option<&str>,
    env: Environment<'_>,
) -> Result<ModelSpec, ConfigError> {
    if let Some(wanted) = wanted {
        return by_choice(settings, wanted, env);
    }
    if let Some(default) = &settings.default_model {
        return by_choice(settings, default, env).map_err(|mut error| {
            let source = settings.sources.get("default_model").cloned();
            error.place = error.place.or(source);
            error
        });
    }
    let mut configured = settings.models.values();
    match (configured.next(), configured.next()) {
        (Some(only), None) => built(only.clone()),
        (Some(_), Some(_)) => Err(ConfigError::new(
            ConfigErrorKind::Conflict,
            "several models are configured and none of them is the default",
        )
        .hint(format!(
            "pass --model KEY or set default_model; configured: {}",
            known_keys(settings)
        ))),
        (None, _) => from_environment(env),
    }
}

/// The configured model of a key, and nothing else: for choices that a model makes.
///
/// # Errors
/// When no model has that key, or its provider is not available.
pub fn model_by_key(settings: &Settings, key: &str) -> Result<ModelSpec, ConfigError> {
    match settings.models.get(key) {
        Some(spec) => built(spec.clone()),
        None => Err(unknown_model(settings, key)),
    }
}

/// The key for a model, from the variable that it names; none where it names none.
///
/// # Errors
/// When the variable is not set, or holds what can't be a key. Its value is not told.
pub fn api_key(spec: &ModelSpec, env: Environment<'_>) -> Result<Option<String>, ConfigError> {
    let Some(variable) = &spec.api_key_env else {
        return Ok(None);
    };
    let model = &spec.key;
    let Some(key) = filled(env, variable) else {
        return Err(ConfigError::new(
            ConfigErrorKind::NoKey,
            format!("model `{model}` wants its key in `{variable}`, which is not set"),
        )
        .hint(format!(
            "export {variable}, or leave `api_key_env` out if the server wants no key"
        )));
    };
    if key.chars().all(|c| ('!'..='~').contains(&c)) {
        return Ok(Some(key));
    }
    Err(ConfigError::new(
        ConfigErrorKind::NoKey,
        format!("`{variable}` holds blanks or other characters that a key can't have"),
    )
    .hint("set it again; perhaps more than the key was copied"))
}

fn by_choice(
    settings: &Settings,
    choice: &str,
    env: Environment<'_>,
) -> Result<ModelSpec, ConfigError> {
    if let Some(spec) = settings.models.get(choice) {
        return built(spec.clone());
    }
    if let Some(file) = choice.strip_prefix(SCRIPT) {
        if file.is_empty() {
            return Err(malformed("`script:` must be followed by a file of replies"));
        }
        return Ok(ModelSpec::new("flag", Provider::Script, "", file));
    }
    if !choice.contains("://") {
        return Err(unknown_model(settings, choice));
    }
    let Some((url, name)) = choice.split_once('#').filter(|(_, name)| !name.is_empty()) else {
        return Err(
            malformed("a URL must be followed by `#` and the model's name")
                .hint("for example http://127.0.0.1:8080/v1#qwen"),
        );
    };
    let url = check_base_url(url)
        .map_err(|rule| malformed(&format!("the part before `#` must be {rule}")))?;
    let mut spec = ModelSpec::new("flag", Provider::Openai, &url, name);
    spec.api_key_env = key_variable_for(&url, env);
    Ok(spec)
}

/// The variable whose key may go to a server that a person named. The key of a known provider
/// goes to that provider only (or to the server that its own variable names), so that trying out
/// a server never hands it a key that was meant for another.
fn key_variable_for(url: &str, env: Environment<'_>) -> Option<String> {
    KNOWN
        .iter()
        .find(|known| {
            let own = filled(env, &format!("{}_BASE_URL", known.name));
            origin(url) == origin(own.as_deref().unwrap_or(known.base_url))
        })
        .map(|known| format!("{}_API_KEY", known.name))
        .into_iter()
        .chain([OWN_KEY.to_owned()])
        .find(|variable| filled(env, variable).is_some())
}

/// Scheme, host and port of a URL, without regard to case.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split('/').next().unwrap_or("");
    format!("{scheme}://{authority}").to_ascii_lowercase()
}

fn from_environment(env: Environment<'_>) -> Result<ModelSpec, ConfigError> {
    for known in KNOWN {
        if let Some(spec) = from_variables(known, env)? {
            return Ok(spec);
        }
    }
    if filled(env, "ANTHROPIC_API_KEY").is_some() {
        return Err(ConfigError::new(
            ConfigErrorKind::NoModel,
            "no model configured: ANTHROPIC_API_KEY is set, but the provider `anthropic` is not \
             available in this version",
        )
        .hint(THREE_WAYS));
    }
    Err(ConfigError::new(ConfigErrorKind::NoModel, "no model configured").hint(THREE_WAYS))
}

fn from_variables(known: &Known, env: Environment<'_>) -> Result<Option<ModelSpec>, ConfigError> {
    let variable = |part: &str| format!("{}_{part}", known.name);
    let has_key = filled(env, &variable("API_KEY")).is_some();
    let own_url = filled(env, &variable("BASE_URL"));
    let own_model = filled(env, &variable("MODEL"));
    // A server of one's own often wants no key; then its URL and model say that it is meant.
    if !has_key && (own_url.is_none() || own_model.is_none()) {
        return Ok(None);
    }
    let url = match &own_url {
        None => known.base_url.to_owned(),
        Some(url) => check_base_url(url).map_err(|rule| {
            ConfigError::new(ConfigErrorKind::OutOfRange, format!("must be {rule}"))
                .at(&variable("BASE_URL"))
        })?,
    };
    let model = match (own_model, &own_url) {
        (Some(model), _) => model,
        (None, None) => known.model.to_owned(),
        (None, Some(_)) => {
            let (model, base_url) = (variable("MODEL"), variable("BASE_URL"));
            return Err(ConfigError::new(
                ConfigErrorKind::Conflict,
                format!("{base_url} is set, but {model} is not"),
            )
            .hint(format!("export {model} with a model that this server has")));
        }
    };
    let mut spec = ModelSpec::new("env", Provider::Openai, &url, &model);
    spec.api_key_env = has_key.then(|| variable("API_KEY"));
    Ok(Some(spec))
}

/// A variable's value without blanks around it; an empty one counts as none.
fn filled(env: Environment<'_>, variable: &str) -> Option<String> {
    env(variable)
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn built(spec: ModelSpec) -> Result<ModelSpec, ConfigError> {
    match spec.provider {
        Provider::Openai | Provider::Script => Ok(spec),
        Provider::Anthropic => Err(ConfigError::new(
            ConfigErrorKind::NotAvailable,
            format!(
                "model `{}`: the provider `anthropic` is not available in this version",
                spec.key
            ),
        )
        .hint("use a server with chat completions: provider = \"openai\"")),
    }
}

fn unknown_model(settings: &Settings, wanted: &str) -> ConfigError {
    let shown: String = wanted.chars().take(100).collect();
    let error = ConfigError::new(
        ConfigErrorKind::UnknownModel,
        format!("no model `{shown}` is configured"),
    );
    let keys = settings.models.keys().map(String::as_str);
    match closest(wanted, keys) {
        Some(near) => error.hint(format!(
            "did you mean `{near}`? Configured: {}",
            known_keys(settings)
        )),
        None => error.hint(format!("configured: {}", known_keys(settings))),
    }
}

fn known_keys(settings: &Settings) -> String {
    if settings.models.is_empty() {
        return "none".to_owned();
    }
    let keys: Vec<String> = settings
        .models
        .keys()
        .map(|key| format!("`{key}`"))
        .collect();
    keys.join(", ")
}

fn malformed(message: &str) -> ConfigError {
    ConfigError::new(ConfigErrorKind::OutOfRange, message)
}
