//! What a workspace's file wants and does not get: it is noted while the layers are laid over each
//! other, and told with what holds in its place.

use super::draft::Draft;
use super::keys::Key;
use super::trust::{FileTrust, Wish};
use crate::job::ModelSpec;

impl Draft {
    /// Notes what a workspace's file wants and does not get; `wanted` is TOML.
    pub(super) fn wish(&mut self, key: String, place: String, wanted: String) {
        self.wishes.push(Wish {
            key,
            place,
            wanted,
            in_force: String::new(),
            source: String::new(),
        });
    }

    /// Says once what becomes of a file of which something was ignored.
    pub(super) fn tell_of_trust(&mut self, file: &str, trust: &FileTrust) {
        if self.wishes.is_empty() {
            return;
        }
        self.warn(match trust {
            FileTrust::Changed { at } => format!(
                "{file}: has changed since it was accepted ({at}), so that it is not trusted any \
                 more; `leader trust` shows what it wants now"
            ),
            FileTrust::Never | FileTrust::Accepted { .. } => format!(
                "{file}: wants more than tightening; `leader trust` shows it and can accept it"
            ),
        });
    }

    /// Everything that was wished for, with what holds in its place after all layers.
    pub(super) fn wishes(self) -> Vec<Wish> {
        let with_held = |wish: &Wish| Wish {
            in_force: self.held_as_toml(&wish.key),
            source: match (self.model_of(&wish.key), &self.web) {
                (Some((_, source)), _) => source.clone(),
                (None, Some((_, source))) if wish.key.starts_with("web.") => source.clone(),
                (None, _) => self.source(&wish.key),
            },
            ..wish.clone()
        };
        self.wishes.iter().map(with_held).collect()
    }

    /// The model that a key such as `models.team.base_url` is about.
    fn model_of(&self, path: &str) -> Option<&(ModelSpec, String)> {
        // The name of a model may have dots, the name of a field has none.
        let (model, _) = path.strip_prefix("models.")?.rsplit_once('.')?;
        self.models.get(model)
    }

    /// One value of the web that holds; none where there is none.
    fn web_as_toml(&self, field: &str) -> Option<String> {
        let (web, _) = self.web.as_ref()?;
        let search = web.search.as_ref();
        match field {
            "pages" => Some(web.pages.to_string()),
            "allow_hosts" => Some(format!("{:?}", web.allow_hosts)),
            "search" => search.map(|search| format!("{:?}", search.engine.as_str())),
            "base_url" => search.map(|search| format!("{:?}", search.base_url)),
            "api_key_env" => {
                let variable = search.and_then(|search| search.api_key_env.as_ref());
                variable.map(|variable| format!("{variable:?}"))
            }
            _ => None,
        }
    }

    fn held_as_toml(&self, path: &str) -> String {
        const NONE: &str = "(none)";
        let field = path.rsplit('.').next().unwrap_or_default();
        if let Some((spec, _)) = self.model_of(path) {
            let spec = serde_json::to_value(spec).unwrap_or_default();
            return match (&spec[field], field) {
                (serde_json::Value::Null, _) => NONE.to_owned(),
                (_, "headers") => "(hidden)".to_owned(),
                (value, _) => value.to_string(),
            };
        }
        if path.starts_with("web.") {
            return self.web_as_toml(field).unwrap_or_else(|| NONE.to_owned());
        }
        match Key::of_path(path) {
            None => NONE.to_owned(),
            Some(Key::Language) => format!("{:?}", self.language().as_str()),
            Some(Key::Admission) => format!("{:?}", self.admission().as_str()),
            Some(Key::Require) => format!("{:?}", self.require().as_str()),
            Some(Key::Highest) => format!("{:?}", self.highest().as_str()),
            Some(Key::Write) => format!("{:?}", self.write().as_str()),
            Some(Key::Network) => format!("{:?}", self.network().as_str()),
            Some(Key::Git) => format!("{:?}", self.git().as_str()),
            Some(Key::SecretPaths) => format!("{:?}", self.with_secrets(Vec::new())),
            Some(Key::DefaultModel | Key::PromptsDir | Key::Cgroup) => self
                .text(path)
                .map_or_else(|| NONE.to_owned(), |text| format!("{text:?}")),
            Some(Key::Number(key)) => self
                .number(key.name)
                .map_or_else(|| NONE.to_owned(), |number| number.to_string()),
            Some(Key::Cap(key)) => self
                .cap(key.name)
                .map_or_else(|| NONE.to_owned(), |number| number.to_string()),
            Some(Key::EnvAllow) => format!("{:?}", self.env_allow()),
            Some(Key::Retention(key)) => self.retention(key.name).to_string(),
        }
    }
}
