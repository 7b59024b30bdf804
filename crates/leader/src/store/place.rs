//! Where an agent may put things: what a caller's path means, and what lies there now.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::place::relative_path;

/// Files of the workspace that say what agents may do, and so are no agent's to write.
const RESERVED_FILES: &[&str] = &["muster.toml", ".mcp.json"];

/// Which parameter a path came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// `deliverables_dir`: a directory, there or not.
    Deliverables,
    /// An entry of `write_paths`: a file or a directory, there or not.
    Write,
}

impl PathUse {
    fn parameter(self) -> &'static str {
        match self {
            PathUse::Deliverables => "deliverables_dir",
            PathUse::Write => "write_paths",
        }
    }
}

/// A path inside the workspace, every link on the way resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Absolute.
    pub absolute: PathBuf,
    /// Relative to the workspace, plain names only.
    pub relative: PathBuf,
    /// What is there.
    pub content: Content,
}

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing, or an empty directory.
    Free,
    /// A directory that holds something.
    NotEmpty,
    /// A file; only where [`PathUse::Write`] allows one.
    File,
}

fn refused(path_use: PathUse, text: &str, why: impl std::fmt::Display) -> ToolError {
    ToolError::new(
        ErrorCode::DeliverablesDirRefused,
        format!(
            "`{}` `{}` is refused: {why}",
            path_use.parameter(),
            text.escape_debug()
        ),
    )
    .hint("give a path relative to the workspace, such as `docs/api`")
}

fn outside(path_use: PathUse, text: &str, why: impl std::fmt::Display) -> ToolError {
    ToolError::new(
        ErrorCode::OutsideWorkspace,
        format!(
            "`{}` `{}` is refused: {why}",
            path_use.parameter(),
            text.escape_debug()
        ),
    )
    .hint("give a path inside the workspace, relative to it, such as `docs/api`")
}

/// Refuses what is not an agent's to write, by the names of a path whose links are resolved.
fn check_names(path_use: PathUse, text: &str, relative: &Path) -> Result<(), ToolError> {
    if let Some(name) = RESERVED_FILES
        .iter()
        .find(|name| relative.starts_with(name))
    {
        let why = format!("`{name}` is not an agent's to write");
        return Err(refused(path_use, text, why));
    }
    relative_path(path_use.parameter(), &relative.to_string_lossy()).map(drop)
}

/// Looks where a path leads, without making anything. `workspace` is absolute with its links
/// resolved; `relative` comes from
/// [`relative_path`].
///
/// # Errors
/// When a link leads out of the workspace, to nowhere, or to what is not an agent's to write, or
/// when something on the way, or the place itself, is not what it must be.
pub fn look_up(path_use: PathUse, workspace: &Path, relative: &Path) -> Result<Place, ToolError> {
    let text = relative.to_string_lossy().into_owned();
    let mut at = workspace.to_path_buf();
    let mut parts = relative.iter().peekable();
    let mut content = Content::Free;
    while let Some(name) = parts.next() {
        at.push(name);
        let meta = match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_symlink() => {
                at = resolve_link(path_use, &text, workspace, &at)?;
                fs::metadata(&at)
            }
            other => other,
        };
        let last = parts.peek().is_none();
        match meta {
            Ok(meta) if meta.is_dir() => {}
            Ok(meta) if last && meta.is_file() && path_use == PathUse::Write => {
                content = Content::File;
            }
            Ok(meta) => {
                let what = if meta.is_file() {
                    "a file"
                } else {
                    "no directory"
                };
                let why = format!("`{}` is {what}", shown(workspace, &at));
                return Err(refused(path_use, &text, why));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                at.extend(parts);
                break;
            }
            Err(error) => {
                let why = format!("`{}` can't be looked at: {error}", shown(workspace, &at));
                return Err(refused(path_use, &text, why));
            }
        }
        if last && content == Content::Free {
            content = content_of(&at)
                .map_err(|error| refused(path_use, &text, format!("it can't be read: {error}")))?;
        }
    }
    let Ok(relative) = at.strip_prefix(workspace).map(Path::to_path_buf) else {
        return Err(outside(
            path_use,
            &text,
            "a link leads out of the workspace",
        ));
    };
    if relative.as_os_str().is_empty() {
        return Err(refused(path_use, &text, "it is the workspace itself"));
    }
    check_names(path_use, &text, &relative)?;
    Ok(Place {
        absolute: at,
        relative,
        content,
    })
}

fn resolve_link(
    path_use: PathUse,
    text: &str,
    workspace: &Path,
    link: &Path,
) -> Result<PathBuf, ToolError> {
    match fs::canonicalize(link) {
        Ok(target) if target.starts_with(workspace) => Ok(target),
        Ok(_) => {
            let why = format!(
                "the link `{}` leads out of the workspace",
                shown(workspace, link)
            );
            Err(outside(path_use, text, why))
        }
        Err(error) => {
            let why = format!(
                "the link `{}` leads nowhere: {error}",
                shown(workspace, link)
            );
            Err(refused(path_use, text, why))
        }
    }
}

fn shown(workspace: &Path, path: &Path) -> String {
    path.strip_prefix(workspace)
        .unwrap_or(path)
        .display()
        .to_string()
}

fn content_of(dir: &Path) -> std::io::Result<Content> {
    Ok(match fs::read_dir(dir)?.next() {
        Some(_) => Content::NotEmpty,
        None => Content::Free,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_resolved_and_may_not_lead_out() {
        let place = tempfile::tempdir().unwrap();
        let workspace = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(workspace.join("docs/full")).unwrap();
        fs::create_dir(workspace.join("empty")).unwrap();
        fs::create_dir(workspace.join(".git")).unwrap();
        fs::write(workspace.join("docs/full/a"), "").unwrap();
        fs::write(workspace.join("file"), "").unwrap();
        for (target, link) in [
            ("docs", "alias"),
            ("/etc", "out"),
            ("nowhere", "dangling"),
            ("loop", "loop"),
            (".git", "git"),
            (".", "self"),
        ] {
            symlink(target, workspace.join(link)).unwrap();
        }
        let look = |path_use, text: &str| {
            look_up(path_use, &workspace, Path::new(text))
                .map(|place| (place.relative.display().to_string(), place.content))
                .map_err(|error| error.code)
        };
        let found = |text: &str| look(PathUse::Deliverables, text);
        use ErrorCode::{DeliverablesDirRefused as Refused, OutsideWorkspace as Outside};
        assert_eq!(found("new/deep"), Ok(("new/deep".into(), Content::Free)));
        assert_eq!(found("empty"), Ok(("empty".into(), Content::Free)));
        assert_eq!(found("docs"), Ok(("docs".into(), Content::NotEmpty)));
        assert_eq!(found("alias/new"), Ok(("docs/new".into(), Content::Free)));
        assert_eq!(
            found("alias/full"),
            Ok(("docs/full".into(), Content::NotEmpty))
        );
        assert_eq!(found("out"), Err(Outside));
        assert_eq!(found("out/new"), Err(Outside));
        for text in [
            "dangling",
            "loop",
            "git",
            "git/hooks",
            "self",
            "file",
            "file/x",
        ] {
            assert_eq!(found(text), Err(Refused), "{text}");
        }
        assert_eq!(
            look(PathUse::Write, "file"),
            Ok(("file".into(), Content::File))
        );
        assert_eq!(fs::read_dir(&workspace).unwrap().count(), 10);
    }
}
