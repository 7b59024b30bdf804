//! The set of texts of one run: built in, or with some of them replaced by the user's own.

use std::collections::BTreeMap;

use super::catalog::{FILES, PHRASES, sections};
use super::template::Template;
use crate::error::closest;
use crate::limits::PROMPT_FILE_BYTES_MAX;
use crate::status::Language;

/// Why a text of the user's own can't stand in for a built-in one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// There is no text of that name to stand in for.
    #[error("prompt file `{name}` is not known{}", did_you_mean(.near.as_deref()))]
    UnknownFile {
        /// Relative to the language's folder.
        name: String,
        /// The closest known name.
        near: Option<String>,
    },
    /// There is no such section to stand in for.
    #[error("prompt file `{name}` has an unknown section `## {section}`{}", did_you_mean(.near.as_deref()))]
    UnknownSection {
        /// Relative to the language's folder.
        name: String,
        /// The section's key.
        section: String,
        /// The closest known key.
        near: Option<String>,
    },
    /// Nothing stands in it.
    #[error("prompt `{name}` is empty; write its text, or delete it to have the built-in one")]
    Empty {
        /// The file, or `file#section`.
        name: String,
    },
    /// It is larger than any model should be sent.
    #[error("prompt file `{name}` has {bytes} bytes; the most is {PROMPT_FILE_BYTES_MAX}")]
    TooLarge {
        /// Relative to the language's folder.
        name: String,
        /// Its size.
        bytes: usize,
    },
    /// A place that the built-in text has is not in it.
    #[error(
        "prompt `{name}` lacks the placeholder `{{{placeholder}}}`; put it where its value is to stand"
    )]
    MissingPlaceholder {
        /// The file, or `file#section`.
        name: String,
        /// What is missing.
        placeholder: String,
    },
    /// A place for which there is no value.
    #[error("prompt `{name}` has an unknown placeholder `{{{placeholder}}}`; known: {known}")]
    UnknownPlaceholder {
        /// The file, or `file#section`.
        name: String,
        /// What is unknown.
        placeholder: String,
        /// What is known.
        known: String,
    },
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default()
}

/// Every text that a model reads, in one language, with one function for each.
#[derive(Debug, Clone)]
pub struct Prompts {
    language: Language,
    /// The user's own, by file name, or `phrases.md#section`. A built-in text is cut when it is
    /// asked for: a process says a few of them, and each start would pay for all.
    own: BTreeMap<String, Template>,
}

impl Prompts {
    /// The texts that are built in.
    pub fn builtin(language: Language) -> Self {
        Prompts {
            language,
            own: BTreeMap::new(),
        }
    }

    /// The built-in texts with some files replaced. `files` maps names as in [`Prompts::names`]
    /// to contents: what the folder `{prompts_dir}/{language}/` holds. A file that is not there,
    /// and a section of `phrases.md` that is not there, stays as it is built in.
    ///
    /// # Errors
    /// When a name or section is unknown, a text is empty or too large, or its placeholders are
    /// not those of the built-in text.
    pub fn with_overrides(
        language: Language,
        files: &BTreeMap<String, String>,
    ) -> Result<Self, TextError> {
        let mut prompts = Prompts::builtin(language);
        for (name, content) in files {
            if !Prompts::names().any(|known| known == name) {
                return Err(TextError::UnknownFile {
                    name: name.clone(),
                    near: closest(name, Prompts::names()).map(str::to_owned),
                });
            }
            if content.len() > PROMPT_FILE_BYTES_MAX {
                return Err(TextError::TooLarge {
                    name: name.clone(),
                    bytes: content.len(),
                });
            }
            if name == PHRASES {
                let content = content.trim_start_matches('\u{feff}');
                for (key, text) in sections(content) {
                    prompts.replace_phrase(key, text)?;
                }
            } else {
                prompts.replace(name.clone(), Template::parse(content))?;
            }
        }
        Ok(prompts)
    }

    /// The names of all files of a language's folder, such as `tools/read_file.md`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|file| file.name)
    }

    /// The language of these texts.
    pub fn language(&self) -> Language {
        self.language
    }

    fn replace_phrase(&mut self, key: &str, text: &str) -> Result<(), TextError> {
        let name = phrase_name(key);
        if builtin(self.language, &name).is_none() {
            let phrases = content(self.language, PHRASES).unwrap_or_default();
            let known = sections(phrases).map(|(known, _)| known);
            return Err(TextError::UnknownSection {
                name: PHRASES.to_owned(),
                section: key.to_owned(),
                near: closest(key, known).map(str::to_owned),
            });
        }
        self.replace(name, Template::parse(text))
    }

    fn replace(&mut self, name: String, text: Template) -> Result<(), TextError> {
        if text.is_empty() {
            return Err(TextError::Empty { name });
        }
        if let Some(builtin) = builtin(self.language, &name) {
            let (wanted, found) = (builtin.slots(), text.slots());
            if let Some(placeholder) = found.difference(&wanted).next() {
                return Err(TextError::UnknownPlaceholder {
                    name,
                    placeholder: (*placeholder).to_owned(),
                    known: known_placeholders(wanted.iter().copied()),
                });
            }
            if let Some(placeholder) = wanted.difference(&found).next() {
                return Err(TextError::MissingPlaceholder {
                    name,
                    placeholder: (*placeholder).to_owned(),
                });
            }
        }
        self.own.insert(name, text);
        Ok(())
    }

    /// A file's text with values put in; empty for a name that is no file.
    pub(super) fn file(&self, name: &str, values: &[(&str, &str)]) -> String {
        match self.own.get(name) {
            Some(text) => text.fill(values),
            None => builtin(self.language, name)
                .map(|text| text.fill(values))
                .unwrap_or_default(),
        }
    }

    /// A section of `phrases.md` with values put in.
    pub(super) fn phrase(&self, key: &str, values: &[(&str, &str)]) -> String {
        self.file(&phrase_name(key), values)
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn texts(&self) -> BTreeMap<String, Template> {
        let phrases = content(self.language, PHRASES).unwrap();
        let files = Prompts::names().filter(|name| *name != PHRASES);
        let names = files
            .map(str::to_owned)
            .chain(sections(phrases).map(|(key, _)| phrase_name(key)));
        let text = |name: &String| match self.own.get(name) {
            Some(text) => text.clone(),
            None => builtin(self.language, name).unwrap(),
        };
        names.map(|name| (name.clone(), text(&name))).collect()
    }
}

/// What a file holds.
fn content(language: Language, name: &str) -> Option<&'static str> {
    let file = FILES.iter().find(|file| file.name == name)?;
    Some(file.content(language))
}

/// A built-in text by its name, as [`Prompts::file`] has it. [`PHRASES`] itself is none.
fn builtin(language: Language, name: &str) -> Option<Template> {
    match name.split_once('#') {
        Some((file, key)) => sections(content(language, file)?)
            .find(|(known, _)| *known == key)
            .map(|(_, text)| Template::parse(text)),
        None if name == PHRASES => None,
        None => content(language, name).map(Template::parse),
    }
}

fn phrase_name(key: &str) -> String {
    format!("{PHRASES}#{key}")
}

fn known_placeholders<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<String> = names.map(|name| format!("`{{{name}}}`")).collect();
    if list.is_empty() {
        "none".to_owned()
    } else {
        list.join(", ")
    }
}
