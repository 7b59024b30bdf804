//! The order in which a tree's mounts are made.
//!
//! What stays writable or in sight is taken aside first; then everything is made read-only, `/tmp`
//! and `/run` are covered, and what was taken aside is put back with what is guarded in it, from
//! the outside inwards. Each mount costs some microseconds, so nothing is copied.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::cover::{RUN_KEPT, Saved, needed_under, outermost, save};
use super::make;
use super::private;
use crate::files::{FilePolicy, Layout, Step, WriteMode, kind_of, layout};
use crate::limits;
use crate::policy::{JailKind, JailPolicy};
use crate::program::ProgramCall;
use crate::report::FilesystemGuard;
use crate::sys::{self, best_effort};

/// Whether the mounts of this namespace are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// They are: a mount here shows nowhere else.
    Own,
    /// They are not: a mount here would show on the machine, so none may be made.
    Shared,
}

/// What stands in a tree's mount namespace.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) view: View,
    pub(crate) guard: FilesystemGuard,
    /// The mounts that must stay where they are.
    pub(crate) steps: Vec<Step>,
}

/// Makes everything a tree has of its own, and lists what could not be made.
///
/// What `call` names stays reachable wherever it lies.
pub(crate) fn build(policy: &JailPolicy, call: &ProgramCall) -> (Ground, Vec<String>) {
    // It fails where the root is no mount point, as in a chroot.
    if let Err(errno) = private::cut_propagation() {
        let ground = Ground {
            view: View::Shared,
            guard: FilesystemGuard::None,
            steps: Vec::new(),
        };
        let gap = format!("no mounts of its own: {}", errno.desc());
        return (ground, vec![gap]);
    }
    let asked = policy.files.as_ref();
    let Layout { steps, gaps } = asked
        .map(|files| layout(files, kind_of))
        .unwrap_or_default();
    let mut work = Work {
        steps,
        saved: Vec::new(),
        visible: Vec::new(),
        // What the tree lacks, apart from what is the nature of what was asked.
        lacks: Vec::new(),
        gaps,
    };
    let covers = work.take_aside(policy, call);
    let closed = match asked {
        None => true,
        Some(_) => work.close_root(),
    };
    for cover in covers {
        work.cover(&cover);
    }
    match policy.kind {
        JailKind::Worker => work.lack(private::private_memory(policy.tmp_bytes)),
        // What one command leaves in the shared one is there for the next.
        JailKind::Command => {}
    }
    let steps = work.put_back();
    work.finish_run(asked);
    work.lack(private::private_proc());
    work.lack(private::private_terminals());
    let guard = match asked {
        Some(files) if closed => FilesystemGuard::held_by_mounts(files.mode),
        _ if work.lacks.is_empty() => FilesystemGuard::PrivateMounts,
        _ => FilesystemGuard::None,
    };
    let mut gaps = work.lacks;
    gaps.extend(work.gaps);
    gaps.extend(asked.into_iter().flat_map(|files| files.gaps.clone()));
    let view = View::Own;
    (Ground { view, guard, steps }, gaps)
}

/// Makes what a command has of its own inside a tree.
pub(crate) fn build_for_command(ground: &Ground, files: Option<&FilePolicy>) -> Vec<String> {
    match ground.view {
        View::Own => {
            let closed = files
                .into_iter()
                .flat_map(|files| &files.command_read_only)
                .filter_map(|path| {
                    let errno = sys::set_read_only_below(path).err()?;
                    let path = path.display();
                    Some(format!("commands may write `{path}`: {}", errno.desc()))
                });
            closed.chain(private::private_proc()).collect()
        }
        View::Shared => vec!["no private /proc: the tree has no mounts of its own".to_owned()],
    }
}

/// A directory that gets an empty one in its place.
struct Cover {
    path: PathBuf,
    bytes: u64,
}

struct Work {
    steps: Vec<Step>,
    /// For the steps that open something.
    saved: Vec<Saved>,
    /// What is put back where it was covered, and is not to be written unless nothing is held.
    visible: Vec<Saved>,
    lacks: Vec<String>,
    gaps: Vec<String>,
}

impl Work {
    fn lack(&mut self, gap: Option<String>) {
        self.lacks.extend(gap);
    }

    /// Takes aside what must stay as it is, and says what may be covered.
    fn take_aside(&mut self, policy: &JailPolicy, call: &ProgramCall) -> Vec<Cover> {
        let mut covers = Vec::new();
        let opened: Vec<PathBuf> = self.opened().map(Path::to_owned).collect();
        for path in &opened {
            match sys::clone_mount(path) {
                Ok(clone) => self.saved.push(Saved {
                    path: path.clone(),
                    clone,
                }),
                Err(errno) => {
                    let path = path.display();
                    let gap = format!("`{path}` can't be written: {}", errno.desc());
                    self.gaps.push(gap);
                }
            }
        }
        match (policy.kind, policy.files.as_ref()) {
            (JailKind::Worker, files) => {
                self.cover_tmp(policy, call, &mut covers, &opened);
                if files.is_some() {
                    self.cover_run(policy, call, &mut covers, &opened);
                }
            }
            // It works in the shared ones, together with others of its worker.
            (JailKind::Command, Some(_)) => {
                self.open_shared("/tmp");
                self.open_shared("/dev/shm");
            }
            (JailKind::Command, None) => {}
        }
        covers
    }

    fn opened(&self) -> impl Iterator<Item = &Path> {
        self.steps.iter().filter_map(|step| match step {
            Step::Open(path) => Some(path.as_path()),
            Step::Close(_) | Step::Pin(_) | Step::Hide(..) => None,
        })
    }

    fn cover_tmp(
        &mut self,
        policy: &JailPolicy,
        call: &ProgramCall,
        covers: &mut Vec<Cover>,
        opened: &[PathBuf],
    ) {
        let Ok(tmp) = Path::new("/tmp").canonicalize() else {
            return;
        };
        match save(&tmp, &not_opened(needed_under(&tmp, policy, call), opened)) {
            Ok(saved) => {
                self.visible.extend(saved);
                covers.push(Cover {
                    path: tmp,
                    bytes: policy.tmp_bytes,
                });
            }
            Err(why) => {
                self.lacks.push(format!("no private /tmp: {why}"));
                // Without any /tmp little works; in a scope it would open what was not given.
                if policy.files.as_ref().map(|files| files.mode) == Some(WriteMode::Workspace) {
                    self.open_shared("/tmp");
                }
            }
        }
    }

    fn cover_run(
        &mut self,
        policy: &JailPolicy,
        call: &ProgramCall,
        covers: &mut Vec<Cover>,
        opened: &[PathBuf],
    ) {
        let Ok(run) = Path::new("/run").canonicalize() else {
            return;
        };
        let kept = RUN_KEPT.iter().map(PathBuf::from).filter(|it| it.exists());
        let needed = needed_under(&run, policy, call);
        let needed = outermost(needed.into_iter().chain(kept).collect());
        match save(&run, &not_opened(needed, opened)) {
            Ok(saved) => {
                self.visible.extend(saved);
                covers.push(Cover {
                    path: run,
                    bytes: limits::RUN_BYTES,
                });
            }
            Err(why) => self.gaps.push(format!(
                "sockets of the machine in /run are in sight: {why}"
            )),
        }
    }

    /// Keeps a directory of the machine writable.
    fn open_shared(&mut self, path: &str) {
        let path = PathBuf::from(path);
        let is_open = self.opened().any(|open| path.starts_with(open));
        if !is_open && let Ok(clone) = sys::clone_mount(&path) {
            let at = self
                .steps
                .partition_point(|step| step.path() < path.as_path());
            self.steps.insert(at, Step::Open(path.clone()));
            self.saved.push(Saved { path, clone });
        }
    }

    /// Makes all there is read-only; says whether that stands.
    fn close_root(&mut self) -> bool {
        match sys::set_read_only_below("/".as_ref()) {
            Ok(()) => true,
            Err(errno) => {
                let gap = format!(
                    "writes are not held by mounts, which needs Linux 5.12: {}",
                    errno.desc()
                );
                self.gaps.push(gap);
                false
            }
        }
    }

    fn cover(&mut self, cover: &Cover) {
        let (path, shown) = (&cover.path, cover.path.display());
        if let Err(errno) = private::tmpfs(path, cover.bytes) {
            self.lacks
                .push(format!("no private {shown}: {}", errno.desc()));
            return;
        }
        if let Some(directory) = std::env::var_os("TMPDIR").map(PathBuf::from)
            && directory.starts_with(path)
        {
            // Where it can't be made, what wants it says so by its name.
            best_effort(
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory),
            );
        }
    }

    /// Puts back what was taken aside and guards what is to be guarded; gives the steps that
    /// stand. What lies in another stands behind it.
    fn put_back(&mut self) -> Vec<Step> {
        let held = !self.steps.is_empty();
        let visible = std::mem::take(&mut self.visible);
        for Saved { path, clone } in visible {
            let closed = match held {
                true => sys::set_read_only_detached(&clone),
                false => Ok(()),
            };
            if let Err(errno) = closed.and_then(|()| make::attach(&path, &clone)) {
                let path = path.display();
                self.lacks
                    .push(format!("{path} is not visible: {}", errno.desc()));
            }
        }
        let mut stand = Vec::new();
        for step in std::mem::take(&mut self.steps) {
            let saved = self.saved.iter().find(|saved| saved.path == step.path());
            let made = match (&step, saved) {
                (Step::Open(path), Some(saved)) => make::attach(path, &saved.clone),
                (Step::Open(_), None) => continue,
                (step, _) => make::guard(step),
            };
            match made {
                Ok(()) => stand.push(step),
                Err(errno) => self.gaps.push(failed(&step, errno)),
            }
        }
        stand
    }

    /// Nothing is written to the covered `/run`.
    fn finish_run(&mut self, asked: Option<&FilePolicy>) {
        let run = Path::new("/run");
        if asked.is_some() && kind_of(run) == crate::files::Kind::Directory {
            best_effort(sys::set_read_only_alone(run));
        }
    }
}

/// Without what is opened anyway.
fn not_opened(needed: Vec<PathBuf>, opened: &[PathBuf]) -> Vec<PathBuf> {
    let is_opened = |path: &PathBuf| opened.iter().any(|open| path.starts_with(open));
    needed.into_iter().filter(|path| !is_opened(path)).collect()
}

fn failed(step: &Step, errno: nix::errno::Errno) -> String {
    let path = step.path().display();
    let what = match step {
        Step::Open(_) => "can't be written",
        Step::Close(_) => "may be written",
        Step::Pin(_) => "may be renamed, with what is protected in it",
        Step::Hide(..) => "is in sight",
    };
    format!("`{path}` {what}: {}", errno.desc())
}
