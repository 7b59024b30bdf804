//! Which model an agent uses, and where the key for it is.

use super::error::{ConfigError, ConfigErrorKind};
use super::field::check_base_url;
use super::settings::Settings;
use crate::channel::WebKey;
use crate::error::closest;
use crate::job::{ModelSpec, Provider};
use crate::web::WebSpec;

/// Looks a variable up.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The beginning of a choice that names a file of replies.
const SCRIPT: &str = "script:";
/// Holds the key for a server that is named on the command line and is none of the known ones.
const OWN_KEY: &str = "MUSTER_API_KEY";
/// What to do when there is no model.
const THREE_WAYS: &str = "three ways to go on:
  1. export OPENAI_API_KEY (or ANTHROPIC_API_KEY, DEEPSEEK_API_KEY, DASHSCOPE_API_KEY, MOONSHOT_API_KEY, \
ZHIPUAI_API_KEY, OPENROUTER_API_KEY)
  2. name a server: --model http://127.0.0.1:11434/v1#MODEL, or --model ollama/MODEL
  3. put a [models.KEY] with provider, base_url, model and api_key_env into your muster.toml";

/// A provider that is known by its variables `{name}_API_KEY`, `{name}_BASE_URL`, `{name}_MODEL`,
/// and as `name/MODEL` in small letters.
struct Known {
    name: &'static str,
    provider: Provider,
    base_url: &'static str,
    /// Its model when nobody names one; empty where there is none that everybody has.
    model: &'static str,
    /// Whether its own server wants a key.
    wants_key: bool,
}

impl Known {
    fn variable(&self, part: &str) -> String {
        format!("{}_{part}", self.name)
    }

    fn is_called(&self, provider: &str) -> bool {
        self.name.to_ascii_lowercase() == provider
    }
}

const KNOWN: &[Known] = &[
    Known {
        name: "OPENAI",
        provider: Provider::Openai,
        base_url: "https://api.openai.com/v1",
        model: "gpt-5-mini",
        wants_key: true,
    },
    Known {
        name: "ANTHROPIC",
        provider: Provider::Anthropic,
        base_url: "https://api.anthropic.com",
        model: "claude-sonnet-4-5",
        wants_key: true,
    },
    Known {
        name: "DEEPSEEK",
        provider: Provider::Openai,
        base_url: "https://api.deepseek.com/v1",
        model: "deepseek-chat",
        wants_key: true,
    },
    Known {
        name: "DASHSCOPE",
        provider: Provider::Openai,
        base_url: "https://dashscope.aliyuncs.com/compatible-mode/v1",
        model: "qwen-plus",
        wants_key: true,
    },
    Known {
        name: "MOONSHOT",
        provider: Provider::Openai,
        base_url: "https://api.moonshot.cn/v1",
        model: "kimi-latest",
        wants_key: true,
    },
    Known {
        name: "ZHIPUAI",
        provider: Provider::Openai,
        base_url: "https://open.bigmodel.cn/api/paas/v4",
        model: "glm-4.6",
        wants_key: true,
    },
    Known {
        name: "OPENROUTER",
        provider: Provider::Openai,
        base_url: "https://openrouter.ai/api/v1",
        model: "openrouter/auto",
        wants_key: true,
    },
    Known {
        name: "OLLAMA",
        provider: Provider::Openai,
        base_url: "http://127.0.0.1:11434/v1",
        model: "",
        wants_key: false,
    },
];

/// The model that a person chose: a key of `[models]`, `URL#NAME`, `PROVIDER/NAME` of a known
/// provider, or `script:FILE`; without a choice `default_model`, else the only configured one,
/// else one from the environment.
///
/// A choice that a model made goes through [`model_by_key`] instead: with a URL it could send a
/// key, or the workspace, to a server of its own.
///
/// # Errors
/// When the choice is unknown or malformed, several models are configured and none is the
/// default, or no model is configured ([`ConfigError::is_no_model`]).
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
        (Some(only), None) => Ok(only.clone()),
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
/// When no model has that key.
pub fn model_by_key(settings: &Settings, key: &str) -> Result<ModelSpec, ConfigError> {
    match settings.models.get(key) {
        Some(spec) => Ok(spec.clone()),
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
    key_in(variable, &format!("model `{}`", spec.key), env).map(Some)
}

/// The key in a variable, for what `whose` names.
fn key_in(variable: &str, whose: &str, env: Environment<'_>) -> Result<String, ConfigError> {
    let Some(key) = filled(env, variable) else {
        return Err(ConfigError::new(
            ConfigErrorKind::NoKey,
            format!("{whose} wants its key in `{variable}`, which is not set"),
        )
        .hint(format!(
            "export {variable}, or leave `api_key_env` out if the server wants no key"
        )));
    };
    if key.chars().all(|c| ('!'..='~').contains(&c)) {
        return Ok(key);
    }
    Err(ConfigError::new(
        ConfigErrorKind::NoKey,
        format!("`{variable}` holds blanks or other characters that a key can't have"),
    )
    .hint("set it again; perhaps more than the key was copied"))
}

/// The key of the search engine, from the variable that it names; none where it names none.
///
/// # Errors
/// As [`api_key`].
pub fn web_key(web: Option<&WebSpec>, env: Environment<'_>) -> Result<Option<WebKey>, ConfigError> {
    let Some(variable) = web
        .and_then(|web| web.search.as_ref())
        .and_then(|search| search.api_key_env.as_ref())
    else {
        return Ok(None);
    };
    key_in(variable, "the search engine", env).map(|key| Some(WebKey(key)))
}

fn by_choice(
    settings: &Settings,
    choice: &str,
    env: Environment<'_>,
) -> Result<ModelSpec, ConfigError> {
    if let Some(spec) = settings.models.get(choice) {
        return Ok(spec.clone());
    }
    if let Some(file) = choice.strip_prefix(SCRIPT) {
        if file.is_empty() {
            return Err(malformed("`script:` must be followed by a file of replies"));
        }
        return Ok(ModelSpec::new("flag", Provider::Script, "", file));
    }
    if !choice.contains("://") {
        let named = choice.split_once('/').and_then(|(provider, model)| {
            let known = KNOWN.iter().find(|known| known.is_called(provider))?;
            Some((known, model)).filter(|(_, model)| !model.is_empty())
        });
        return match named {
            Some((known, model)) => of_known(known, model, env),
            None => Err(unknown_model(settings, choice)),
        };
    }
    let Some((url, name)) = choice.split_once('#').filter(|(_, name)| !name.is_empty()) else {
        return Err(
            malformed("a URL must be followed by `#` and the model's name")
                .hint("for example http://127.0.0.1:8080/v1#qwen"),
        );
    };
    let url = check_base_url(url)
        .map_err(|rule| malformed(&format!("the part before `#` must be {rule}")))?;
    let known = known_at(&url, env);
    let provider = known.map_or(Provider::Openai, |known| known.provider);
    let mut spec = ModelSpec::new("flag", provider, &url, name);
    spec.api_key_env = key_variable_for(known, env);
    Ok(spec)
}

/// A model of a known provider, as `openai/NAME`, at its own server or at the one that its
/// variable names.
fn of_known(known: &Known, model: &str, env: Environment<'_>) -> Result<ModelSpec, ConfigError> {
    let own_url = own_url(known, env)?;
    let url = own_url.as_deref().unwrap_or(known.base_url);
    let mut spec = ModelSpec::new("flag", known.provider, url, model);
    let variable = known.variable("API_KEY");
    // Its own server wants a key, so that a missing one is told before anything is sent.
    let wanted = (own_url.is_none() && known.wants_key) || filled(env, &variable).is_some();
    spec.api_key_env = wanted.then_some(variable);
    Ok(spec)
}

/// The server that a provider's own variable names.
fn own_url(known: &Known, env: Environment<'_>) -> Result<Option<String>, ConfigError> {
    let variable = known.variable("BASE_URL");
    let url = filled(env, &variable);
    url.map(|url| {
        check_base_url(&url).map_err(|rule| {
            ConfigError::new(ConfigErrorKind::OutOfRange, format!("must be {rule}")).at(&variable)
        })
    })
    .transpose()
}

/// The known provider whose server this is, by its own address or the one of its variable.
fn known_at(url: &str, env: Environment<'_>) -> Option<&'static Known> {
    KNOWN.iter().find(|known| {
        let own = filled(env, &known.variable("BASE_URL"));
        origin(url) == origin(own.as_deref().unwrap_or(known.base_url))
    })
}

/// The variable whose key may go to a server that a person named. The key of a known provider
/// goes to that provider only (or to the server that its own variable names), so that trying out
/// a server never hands it a key that was meant for another.
fn key_variable_for(known: Option<&Known>, env: Environment<'_>) -> Option<String> {
    known
        .map(|known| known.variable("API_KEY"))
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
    Err(ConfigError::new(ConfigErrorKind::NoModel, "no model configured").hint(THREE_WAYS))
}

fn from_variables(known: &Known, env: Environment<'_>) -> Result<Option<ModelSpec>, ConfigError> {
    let variable = |part: &str| known.variable(part);
    let has_key = filled(env, &variable("API_KEY")).is_some();
    let has_url = filled(env, &variable("BASE_URL")).is_some();
    let own_model = filled(env, &variable("MODEL"));
    // A server of one's own often wants no key; then its URL and model say that it is meant.
    if !has_key && (!has_url || own_model.is_none()) {
        return Ok(None);
    }
    let own_url = own_url(known, env)?;
    let url = own_url.as_deref().unwrap_or(known.base_url);
    let model = match (own_model, &own_url) {
        (Some(model), _) => model,
        (None, None) if !known.model.is_empty() => known.model.to_owned(),
        (None, Some(_) | None) => {
            let set = if has_url { "BASE_URL" } else { "API_KEY" };
            let (model, set) = (variable("MODEL"), variable(set));
            return Err(ConfigError::new(
                ConfigErrorKind::Conflict,
                format!("{set} is set, but {model} is not"),
            )
            .hint(format!("export {model} with a model that this server has")));
        }
    };
    let mut spec = ModelSpec::new("env", known.provider, url, &model);
    spec.api_key_env = has_key.then(|| variable("API_KEY"));
    Ok(Some(spec))
}

/// A variable's value without blanks around it; an empty one counts as none.
fn filled(env: Environment<'_>, variable: &str) -> Option<String> {
    env(variable)
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
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
