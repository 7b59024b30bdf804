//! The values of a model's headers: known to who speaks to the model, and written nowhere.

use crate::job::ModelSpec;

impl ModelSpec {
    /// What of it may stand in `job.json` and the event log: all but the values of its headers.
    /// Which of them is a secret can't be told from a value, so that none is written; an empty
    /// text stands for each.
    pub fn for_the_record(&self) -> ModelSpec {
        let headers = self.headers.keys().cloned();
        ModelSpec {
            headers: headers.map(|name| (name, String::new())).collect(),
            ..self.clone()
        }
    }

    /// Whether values of headers were left out of it.
    pub fn lacks_headers(&self) -> bool {
        self.headers.values().any(String::is_empty)
    }

    /// Takes the values that were left out from the model that is configured under the same key.
    ///
    /// # Errors
    /// Why there are none, when that model is not configured, is spoken to at another address (it
    /// would get what was meant for the configured one), or lacks one of the headers.
    pub fn take_headers_of(&mut self, configured: Option<&ModelSpec>) -> Result<(), String> {
        let key = &self.key;
        let configured = configured.ok_or_else(|| format!("model `{key}` is not configured"))?;
        if configured.base_url != self.base_url {
            return Err(format!(
                "model `{key}` is configured for another address, {}",
                configured.base_url
            ));
        }
        for (name, value) in self.headers.iter_mut().filter(|(_, it)| it.is_empty()) {
            let found = configured.headers.get(name);
            value.clone_from(found.ok_or_else(|| {
                format!("model `{key}` is configured without the header `{name}`")
            })?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Provider;

    fn with_headers(base_url: &str, headers: &[(&str, &str)]) -> ModelSpec {
        let mut spec = ModelSpec::new("main", Provider::Openai, base_url, "m");
        spec.headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        spec
    }

    #[test]
    fn a_record_has_the_names_of_headers_and_the_configuration_their_values() {
        let here = "http://127.0.0.1/v1";
        let whole = with_headers(here, &[("A", "one"), ("B", "two")]);
        let record = whole.for_the_record();
        assert_eq!(record, with_headers(here, &[("A", ""), ("B", "")]));
        assert!(record.lacks_headers() && !whole.lacks_headers());
        let mut again = record.clone();
        assert_eq!(again.take_headers_of(Some(&whole)), Ok(()));
        assert_eq!(again, whole);
        let refused = |configured: Option<&ModelSpec>| {
            record.clone().take_headers_of(configured).unwrap_err()
        };
        assert_eq!(refused(None), "model `main` is not configured");
        assert_eq!(
            refused(Some(&with_headers("http://elsewhere/v1", &[("A", "one")]))),
            "model `main` is configured for another address, http://elsewhere/v1"
        );
        assert_eq!(
            refused(Some(&with_headers(here, &[("A", "one")]))),
            "model `main` is configured without the header `B`"
        );
    }
}
