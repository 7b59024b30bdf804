//! Where an agent may put things: what a caller's path means, and what lies there now.

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::job::AGENT_DIR;

/// Names that belong to git, to us or to other tools' settings, wherever they stand in a path.
const RESERVED_NAMES: &[&str] = &[
    ".git",
    ".muster",
    ".team",
    ".tasks",
    ".worktrees",
    ".claude",
    ".mcp.json",
    "muster.toml",
    AGENT_DIR,
];
/// Bytes of a relative path.
const PATH_BYTES_MAX: usize = 1_024;
/// Bytes of one name, as file systems have it.
const NAME_BYTES_MAX: usize = 255;

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

/// Reads a caller's path by its text alone: plain names below the workspace, `./` and doubled or
/// trailing slashes taken away.
///
/// # Errors
/// When it is empty, the workspace itself, absolute, begins with `~`, has `..` or NUL, is too
/// long, or names something of git or of ours.
pub fn plain_relative(path_use: PathUse, text: &str) -> Result<PathBuf, ToolError> {
    if text.trim().is_empty() {
        return Err(refused(path_use, text, "it is empty"));
    }
    if text.contains('\0') {
        return Err(refused(path_use, text, "it holds a NUL character"));
    }
    if text.len() > PATH_BYTES_MAX {
        let start = &text[..protocol::result::floor_border(text, 40)];
        let why = format!("it has {} bytes; the most is {PATH_BYTES_MAX}", text.len());
        return Err(refused(path_use, &format!("{start}…"), why));
    }
    if text.starts_with('~') {
        return Err(outside(path_use, text, "`~` is not expanded"));
    }
    let mut relative = PathBuf::new();
    for part in Path::new(text).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => relative.push(name),
            Component::ParentDir => return Err(outside(path_use, text, "it goes up with `..`")),
            Component::RootDir | Component::Prefix(_) => {
                return Err(outside(path_use, text, "it is absolute"));
            }
        }
    }
    if relative.as_os_str().is_empty() {
        return Err(refused(path_use, text, "it is the workspace itself"));
    }
    check_names(path_use, text, &relative)?;
    Ok(relative)
}

fn check_names(path_use: PathUse, text: &str, relative: &Path) -> Result<(), ToolError> {
    let reserved = |name: &&OsStr| RESERVED_NAMES.iter().any(|word| name == word);
    if let Some(name) = relative.iter().find(reserved) {
        let why = format!("`{}` is not an agent's to write", name.display());
        return Err(refused(path_use, text, why));
    }
    match relative.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        Some(name) => Err(refused(
            path_use,
            text,
            format!(
                "a name in it has {} bytes; the most is {NAME_BYTES_MAX}",
                name.len()
            ),
        )),
        None => Ok(()),
    }
}

/// Looks where a path leads, without making anything. `workspace` is absolute with its links
/// resolved; `relative` comes from [`plain_relative`].
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

    fn code(text: &str) -> Result<PathBuf, ErrorCode> {
        plain_relative(PathUse::Deliverables, text).map_err(|error| error.code)
    }

    #[test]
    fn a_path_that_escapes_is_refused_by_its_text() {
        use ErrorCode::{DeliverablesDirRefused as Refused, OutsideWorkspace as Outside};
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        let name = "y".repeat(NAME_BYTES_MAX + 1);
        for (text, why) in [
            ("../x", Outside),
            ("/tmp/x", Outside),
            ("a/../../x", Outside),
            ("a/..", Outside),
            ("~/x", Outside),
            ("~root", Outside),
            ("", Refused),
            ("  ", Refused),
            (".", Refused),
            ("././/", Refused),
            ("a/\0", Refused),
            (".git", Refused),
            ("./.git/hooks", Refused),
            ("a/.git", Refused),
            (".muster/runs", Refused),
            (".tasks", Refused),
            ("docs/.subagent", Refused),
            (long.as_str(), Refused),
            (name.as_str(), Refused),
        ] {
            assert_eq!(code(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn spellings_of_one_directory_are_one_path() {
        for text in ["docs/api", "./docs//api/", "docs/./api"] {
            assert_eq!(code(text), Ok(PathBuf::from("docs/api")), "{text}");
        }
        assert_eq!(code("a~b/.github"), Ok(PathBuf::from("a~b/.github")));
        let longest = "z".repeat(NAME_BYTES_MAX);
        assert_eq!(code(&longest), Ok(PathBuf::from(&longest)));
    }

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
