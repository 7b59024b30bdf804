//! Paths, words and environments in JSON: text where they are UTF-8, else an array of bytes, so
//! that none is lost.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

struct PathText(PathBuf);

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PathVisitor).map(PathText)
    }
}

fn write<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => to.serialize_str(text),
        None => to.serialize_bytes(path.as_os_str().as_bytes()),
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = PathBuf;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a path as a string, or as an array of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PathBuf, E> {
        Ok(PathBuf::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<PathBuf, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = items.next_element::<u8>()? {
            bytes.push(byte);
        }
        Ok(OsString::from_vec(bytes).into())
    }
}

/// For a list of words.
pub(crate) mod words {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(words: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(words.iter().cloned().map(|word| PathText(word.into())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<OsString>, D::Error> {
        let words = Vec::<PathText>::deserialize(from)?;
        Ok(words.into_iter().map(|word| word.0.into()).collect())
    }
}

/// For an environment.
pub(crate) mod pairs {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        pairs: &[(OsString, OsString)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            pairs
                .iter()
                .cloned()
                .map(|(a, b)| (PathText(a.into()), PathText(b.into()))),
        )
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(OsString, OsString)>, D::Error> {
        let pairs = Vec::<(PathText, PathText)>::deserialize(from)?;
        Ok(pairs
            .into_iter()
            .map(|(a, b)| (a.0.into(), b.0.into()))
            .collect())
    }
}

/// For one path.
pub(crate) mod one {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        write(path, to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        PathText::deserialize(from).map(|path| path.0)
    }
}

/// For a list of paths.
pub(crate) mod list {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().cloned().map(PathText))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<PathText>::deserialize(from)?;
        Ok(paths.into_iter().map(|path| path.0).collect())
    }
}

/// For a path that may be missing.
pub(crate) mod optional {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        path.clone().map(PathText).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Option::<PathText>::deserialize(from).map(|path| path.map(|path| path.0))
    }
}
