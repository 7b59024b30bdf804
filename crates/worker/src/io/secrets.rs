//! Which secrets this process knows.

use std::path::Path;

use protocol::channel::{ModelAccess, WebKey};
use protocol::secret::{Mask, known_values};

/// What nobody is to read: the keys of model and search engine, what the leader gave along, and whatever in this
/// process's own environment is called like a secret.
pub fn mask(access: &ModelAccess, web_key: Option<&WebKey>, given: &[String]) -> Mask {
    let variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let named: Vec<&str> = access.spec.api_key_env.iter().map(String::as_str).collect();
    let exists = |path: &str| Path::new(path).exists();
    let own = known_values(
        variables.iter().map(|(name, value)| (&**name, &**value)),
        &named,
        &exists,
    );
    let web_key = web_key.map(|WebKey(key)| key);
    Mask::of(
        own.iter()
            .chain(&access.api_key)
            .chain(web_key)
            .chain(given),
    )
}
