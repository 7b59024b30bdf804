//! Finding a place in the workspace without ever following a link out of it.
//!
//! The path is walked name by name from a descriptor of the workspace. Each name is opened with
//! `O_PATH | O_NOFOLLOW`, so a link is seen as a link, its text is read, and its parts are walked
//! by the same rules; `..` takes back a descriptor that was walked through, never the kernel's
//! idea of a parent. What the walk hands back is a descriptor of the directory that holds the
//! place, so whatever is swapped into the path afterwards changes nothing.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use protocol::error::{ErrorCode, ToolError, closest};

use super::failure::{Doing, system_failure};
use super::limits;
use super::names;

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else that must not be opened; its name in words.
    Other(&'static str),
}

/// A place in the workspace, reached without leaving it.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its path relative to the workspace, links resolved.
    pub(crate) relative: PathBuf,
    /// The deepest directory on the way to it that exists.
    pub(crate) directory: OwnedFd,
    /// The names below `directory`: one when the place or its directory exists, none when it is
    /// the workspace itself.
    pub(crate) rest: Vec<OsString>,
    /// What stands there; none when nothing does.
    pub(crate) kind: Option<Kind>,
}

impl Place {
    /// The path as a model can copy it.
    pub(crate) fn shown(&self) -> String {
        names::show(&self.relative)
    }

    /// Opens the regular file at this place for reading. It never waits: a pipe or device that
    /// was swapped in is opened without blocking and then refused.
    ///
    /// # Errors
    /// When nothing is there, it is no regular file, or the system refuses.
    pub(crate) fn open_file(&self) -> Result<(File, FileStat), ToolError> {
        match (self.kind, self.rest.as_slice()) {
            (Some(Kind::File), [name]) => open_regular(self.directory.as_fd(), name, &self.shown()),
            (Some(Kind::File | Kind::Directory), _) => {
                Err(not_a_file(&self.shown(), "a directory"))
            }
            (Some(Kind::Other(what)), _) => Err(not_a_file(&self.shown(), what)),
            (None, _) => Err(self.missing()),
        }
    }

    /// The failure that says that nothing is there, with the nearest name that is.
    fn missing(&self) -> ToolError {
        let error = ToolError::new(ErrorCode::NotFound, format!("no file `{}`", self.shown()));
        let near = match self.rest.as_slice() {
            [name] => name.to_str().and_then(|name| self.similar_name(name)),
            _ => None,
        };
        match near {
            Some(near) => {
                let path = self.relative.with_file_name(near);
                error.hint(format!("did you mean `{}`?", names::show(&path)))
            }
            None => error.hint("list names with search_workspace, kind `files`"),
        }
    }

    fn similar_name(&self, name: &str) -> Option<String> {
        // Through the descriptor, so that nothing swapped into the path is listed instead.
        let directory = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        let known: Vec<String> = std::fs::read_dir(directory)
            .ok()?
            .take(limits::SIMILAR_NAMES_MAX)
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        closest(name, known.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// A place below a directory that the worker itself was given, which is not to be a link. Nothing
/// is known to stand there.
///
/// # Errors
/// When the directory can't be opened.
pub(crate) fn place_below(directory: &Path, below: &[&str]) -> Result<Place, ToolError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let relative: PathBuf = below.iter().collect();
    let opened = nix::fcntl::open(directory, flags, Mode::empty())
        .map_err(|errno| system_failure(Doing::Write, &names::show(&relative), errno))?;
    Ok(Place {
        relative,
        directory: opened,
        rest: below.iter().map(OsString::from).collect(),
        kind: None,
    })
}

/// Opens a regular file below `directory` for reading, without following a link or waiting.
///
/// # Errors
/// When it is no regular file or the system refuses.
pub(crate) fn open_regular(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    shown: &str,
) -> Result<(File, FileStat), ToolError> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let refused = |errno| system_failure(Doing::Read, shown, errno);
    let opened = openat(directory, name, flags, Mode::empty()).map_err(refused)?;
    let stat = fstat(&opened).map_err(refused)?;
    match kind_of(&stat) {
        Kind::File => Ok((File::from(opened), stat)),
        Kind::Directory => Err(not_a_file(shown, "a directory")),
        Kind::Other(what) => Err(not_a_file(shown, what)),
    }
}

/// The failure that a place is no regular file.
pub(crate) fn not_a_file(shown: &str, what: &str) -> ToolError {
    ToolError::new(
        ErrorCode::NotAFile,
        format!("`{shown}` is not a regular file: it is {what}"),
    )
    .hint("list names with search_workspace, kind `files`")
}

/// What a file status describes.
pub(crate) fn kind_of(stat: &FileStat) -> Kind {
    let format = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    match format {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Directory,
        SFlag::S_IFLNK => Kind::Other("a symbolic link"),
        SFlag::S_IFIFO => Kind::Other("a named pipe (FIFO)"),
        SFlag::S_IFSOCK => Kind::Other("a socket"),
        SFlag::S_IFCHR => Kind::Other("a character device"),
        SFlag::S_IFBLK => Kind::Other("a block device"),
        _ => Kind::Other("of an unknown kind"),
    }
}

/// Finds the place that a model's path means, relative to the workspace or absolute inside it.
///
/// # Errors
/// `outside_workspace` when it, or a link on the way, leads out; otherwise what the system says.
pub(crate) fn resolve(workspace: &Path, text: &str, doing: Doing) -> Result<Place, ToolError> {
    if text.is_empty() {
        return Err(
            ToolError::new(ErrorCode::InvalidParameters, "the path is empty")
                .hint("give a path relative to the workspace, such as `notes/today.md`"),
        );
    }
    let name = names::read(text);
    if names::has_nul(&name) {
        return Err(ToolError::new(
            ErrorCode::InvalidParameters,
            "the path holds a NUL character, which no file name can hold",
        )
        .hint("leave it out"));
    }
    let shown = names::show(Path::new(&name));
    let mut walk = Walk::start(workspace, shown, doing)?;
    walk.push(Path::new(&name), Reached::ByPath)?;
    walk.run()
}

/// How a path came into the walk, for the words of a refusal.
#[derive(Debug, Clone, Copy)]
enum Reached {
    ByPath,
    ByLink,
}

/// One step that is still to be walked.
#[derive(Debug)]
enum Step {
    Down(OsString),
    Up(Reached),
}

#[derive(Debug)]
struct Walk<'a> {
    workspace: &'a Path,
    shown: String,
    doing: Doing,
    root: OwnedFd,
    /// The directories walked through, below the workspace.
    stack: Vec<(OsString, OwnedFd)>,
    steps: VecDeque<Step>,
    links: usize,
}

impl<'a> Walk<'a> {
    fn start(workspace: &'a Path, shown: String, doing: Doing) -> Result<Self, ToolError> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(workspace, flags, Mode::empty())
            .map_err(|errno| system_failure(doing, "the workspace", errno))?;
        Ok(Walk {
            workspace,
            shown,
            doing,
            root,
            stack: Vec::new(),
            steps: VecDeque::new(),
            links: 0,
        })
    }

    /// Puts a path in front of what is still to be walked.
    fn push(&mut self, path: &Path, reached: Reached) -> Result<(), ToolError> {
        let inner = if path.is_absolute() {
            self.stack.clear();
            path.strip_prefix(self.workspace)
                .map_err(|_| self.outside(reached))?
        } else {
            path
        };
        let mut steps: VecDeque<Step> = inner
            .components()
            .filter_map(|component| match component {
                Component::Normal(name) => Some(Step::Down(name.to_owned())),
                Component::ParentDir => Some(Step::Up(reached)),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
            })
            .collect();
        if steps.len() + self.steps.len() > limits::PATH_COMPONENTS_MAX {
            return Err(self.too_deep());
        }
        steps.append(&mut self.steps);
        self.steps = steps;
        Ok(())
    }

    fn run(mut self) -> Result<Place, ToolError> {
        while let Some(step) = self.steps.pop_front() {
            let name = match step {
                Step::Down(name) => name,
                Step::Up(reached) => {
                    if self.stack.pop().is_none() {
                        return Err(self.outside(reached));
                    }
                    continue;
                }
            };
            if self.stack.len() >= limits::PATH_COMPONENTS_MAX {
                return Err(self.too_deep());
            }
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let opened = match openat(self.here(), name.as_os_str(), flags, Mode::empty()) {
                Ok(opened) => opened,
                Err(Errno::ENOENT) => return self.nothing_there(name),
                Err(errno) => return Err(self.refused(errno)),
            };
            let stat = fstat(&opened).map_err(|errno| self.refused(errno))?;
            match kind_of(&stat) {
                Kind::Directory => self.stack.push((name, opened)),
                Kind::Other(_) if is_link(&stat) => self.follow(&opened)?,
                kind if self.steps.is_empty() => return self.arrive(name, kind),
                Kind::File | Kind::Other(_) => return Err(self.refused(Errno::ENOTDIR)),
            }
        }
        self.arrive_at_directory()
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.stack
            .last()
            .map_or(self.root.as_fd(), |(_, directory)| directory.as_fd())
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), ToolError> {
        self.links += 1;
        if self.links > limits::PATH_LINKS_MAX {
            return Err(self.refused(Errno::ELOOP));
        }
        // An empty path reads the link behind an O_PATH descriptor itself: open(2), Linux 2.6.39.
        let target = readlinkat(link, "").map_err(|errno| self.refused(errno))?;
        self.push(Path::new(&target), Reached::ByLink)
    }

    fn arrive(self, name: OsString, kind: Kind) -> Result<Place, ToolError> {
        self.place(vec![name], Some(kind))
    }

    fn arrive_at_directory(mut self) -> Result<Place, ToolError> {
        let rest = self.stack.pop().map(|(name, _)| name);
        self.place(rest.into_iter().collect(), Some(Kind::Directory))
    }

    fn nothing_there(mut self, name: OsString) -> Result<Place, ToolError> {
        let mut rest = vec![name];
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Down(name) => rest.push(name),
                // What lies above a directory that does not exist is nobody's to say.
                Step::Up(_) => return Err(self.refused(Errno::ENOENT)),
            }
        }
        self.place(rest, None)
    }

    fn place(mut self, rest: Vec<OsString>, kind: Option<Kind>) -> Result<Place, ToolError> {
        let mut relative: PathBuf = self.stack.iter().map(|(name, _)| name).collect();
        relative.extend(&rest);
        let directory = self
            .stack
            .pop()
            .map_or(self.root, |(_, directory)| directory);
        Ok(Place {
            relative,
            directory,
            rest,
            kind,
        })
    }

    fn refused(&self, errno: Errno) -> ToolError {
        system_failure(self.doing, &self.shown, errno)
    }

    fn too_deep(&self) -> ToolError {
        ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "the path has too many parts; the most is {}",
                limits::PATH_COMPONENTS_MAX
            ),
        )
        .hint("choose a shorter path")
    }

    fn outside(&self, reached: Reached) -> ToolError {
        let why = match reached {
            Reached::ByPath => "lies outside the workspace",
            Reached::ByLink => "leads out of the workspace through a symbolic link",
        };
        ToolError::new(
            ErrorCode::OutsideWorkspace,
            format!("`{}` {why}", self.shown),
        )
        .hint("give a path relative to the workspace")
    }
}

fn is_link(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFLNK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Ground {
        _keep: tempfile::TempDir,
        workspace: PathBuf,
        outside: PathBuf,
    }

    fn ground() -> Ground {
        let keep = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(keep.path()).unwrap();
        let (workspace, outside) = (base.join("w"), base.join("outside"));
        fs::create_dir_all(workspace.join("d/e")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(workspace.join("d/f"), "inside").unwrap();
        fs::write(outside.join("victim.txt"), "victim").unwrap();
        Ground {
            _keep: keep,
            workspace,
            outside,
        }
    }

    fn relative(ground: &Ground, text: &str) -> Result<(String, Option<Kind>), ErrorCode> {
        resolve(&ground.workspace, text, Doing::Read)
            .map(|place| (place.shown(), place.kind))
            .map_err(|error| error.code)
    }

    #[test]
    fn places_inside_are_found_by_every_spelling() {
        let ground = ground();
        let absolute = ground.workspace.join("d/f");
        let file = Ok(("d/f".to_owned(), Some(Kind::File)));
        for text in [
            "d/f",
            "./d//f",
            "d/e/../f",
            "d/../d/f",
            absolute.to_str().unwrap(),
        ] {
            assert_eq!(relative(&ground, text), file, "{text}");
        }
        assert_eq!(
            relative(&ground, "."),
            Ok((".".into(), Some(Kind::Directory)))
        );
        assert_eq!(
            relative(&ground, "d/e/"),
            Ok(("d/e".into(), Some(Kind::Directory)))
        );
        assert_eq!(relative(&ground, "d/n/m"), Ok(("d/n/m".into(), None)));
    }

    #[test]
    fn links_are_followed_inside_and_never_out() {
        let ground = ground();
        let at = |name: &str| ground.workspace.join(name);
        symlink("d/f", at("near")).unwrap();
        symlink(ground.workspace.join("d"), at("abs")).unwrap();
        symlink("../../d", at("d/e/up")).unwrap();
        symlink("gone", at("dangling")).unwrap();
        symlink(ground.outside.join("victim.txt"), at("notes.md")).unwrap();
        symlink(ground.outside.join("none.txt"), at("new.md")).unwrap();
        symlink(&ground.outside, at("box")).unwrap();
        symlink("../outside", at("box2")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let file = Ok(("d/f".to_owned(), Some(Kind::File)));
        for text in ["near", "abs/f", "d/e/up/f"] {
            assert_eq!(relative(&ground, text), file, "{text}");
        }
        assert_eq!(relative(&ground, "dangling"), Ok(("gone".into(), None)));
        for text in [
            "notes.md",
            "new.md",
            "box",
            "box/victim.txt",
            "box2/victim.txt",
            "loop",
            "..",
            "../outside/victim.txt",
            "d/../../outside",
            "/etc/hosts",
            "box/../d/f",
        ] {
            assert_eq!(
                relative(&ground, text),
                Err(ErrorCode::OutsideWorkspace),
                "{text}"
            );
        }
    }

    #[test]
    fn paths_that_can_be_no_path_are_refused() {
        let ground = ground();
        let deep = "d/../".repeat(200);
        for (text, code) in [
            ("", ErrorCode::InvalidParameters),
            ("a\0b", ErrorCode::InvalidParameters),
            ("a\\x00b", ErrorCode::InvalidParameters),
            (deep.as_str(), ErrorCode::InvalidParameters),
            ("d/f/x", ErrorCode::NotFound),
            ("gone/../d/f", ErrorCode::NotFound),
            (&"n".repeat(300), ErrorCode::InvalidParameters),
        ] {
            assert_eq!(relative(&ground, text), Err(code), "{text}");
        }
    }

    #[test]
    fn a_missing_file_names_its_neighbour() {
        let ground = ground();
        fs::write(ground.workspace.join("d/routes.py"), "").unwrap();
        let error = resolve(&ground.workspace, "d/route.py", Doing::Read)
            .unwrap()
            .open_file()
            .unwrap_err();
        assert_eq!(error.message, "no file `d/route.py`");
        assert_eq!(error.hint, "did you mean `d/routes.py`?");
    }

    #[test]
    fn a_pipe_is_told_at_once() {
        let ground = ground();
        nix::unistd::mkfifo(&ground.workspace.join("p"), Mode::S_IRWXU).unwrap();
        let begun = std::time::Instant::now();
        let place = resolve(&ground.workspace, "p", Doing::Read).unwrap();
        let error = place.open_file().unwrap_err();
        assert_eq!(error.code, ErrorCode::NotAFile);
        assert!(error.message.contains("not a regular file"), "{error}");
        // The same when it takes the place of a file between the look and the opening.
        let swapped = open_regular(place.directory.as_fd(), OsStr::new("p"), "p").unwrap_err();
        assert_eq!(swapped, error);
        assert!(begun.elapsed() < std::time::Duration::from_secs(1));
    }
}
