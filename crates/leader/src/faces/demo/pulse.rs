//! Whether the process that cut itself loose lives: it holds a pipe open, and the kernel tells of
//! the end of the last holder, whatever became of it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

use crate::faces::demo::script::{PIPE, STOP};

/// How long after its agent's end the process counts as a survivor, in milliseconds.
const GONE_MS_MAX: u64 = 1_500;
/// How long it may take to end itself once it is told to, in milliseconds; it looks every second.
const STOPPED_MS_MAX: u64 = 5_000;

/// What became of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It never said that it was up.
    NeverUp,
    /// It was dead as soon as its agent's end was told.
    DiedWithItsAgent,
    /// It outlived its agent, and ended when the demo told it to.
    EndedByTheDemo,
    /// It is still there; it ends by itself within a minute.
    StillThere,
}

impl Fate {
    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Fate::NeverUp => "never_up",
            Fate::DiedWithItsAgent => "died_with_its_agent",
            Fate::EndedByTheDemo => "ended_by_the_demo",
            Fate::StillThere => "still_there",
        }
    }
}

/// The reading end of the pipe.
#[derive(Debug)]
pub struct Pulse {
    pipe: Receiver,
    stop: PathBuf,
    was_up: bool,
}

impl Pulse {
    /// Opens the pipe of a workspace, before anybody holds it.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn of(workspace: &Path) -> io::Result<Pulse> {
        Ok(Pulse {
            pipe: OpenOptions::new().open_receiver(workspace.join(PIPE))?,
            stop: workspace.join(STOP),
            was_up: false,
        })
    }

    /// What became of the process, once its agent has ended. One that outlived it is told to end.
    ///
    /// # Errors
    /// When the pipe can't be read.
    pub async fn fate(&mut self) -> io::Result<Fate> {
        if self.is_gone(Duration::from_millis(GONE_MS_MAX)).await? {
            return Ok(match self.was_up {
                true => Fate::DiedWithItsAgent,
                false => Fate::NeverUp,
            });
        }
        // A pipe that nobody ever opened has no end that could be told of.
        Ok(match (self.end().await?, self.was_up) {
            (_, false) => Fate::NeverUp,
            (true, true) => Fate::EndedByTheDemo,
            (false, true) => Fate::StillThere,
        })
    }

    /// Tells the process to end itself, wherever it is; says whether it is gone. One that has not
    /// said that it is up yet finds the word when it looks for the first time.
    ///
    /// # Errors
    /// When it can't be told, or the pipe can't be read.
    pub async fn end(&mut self) -> io::Result<bool> {
        std::fs::write(&self.stop, "")?;
        if !self.was_up {
            return Ok(true);
        }
        self.is_gone(Duration::from_millis(STOPPED_MS_MAX)).await
    }

    /// Whether nobody holds the pipe, now or within the budget.
    async fn is_gone(&mut self, budget: Duration) -> io::Result<bool> {
        let reading = async {
            let mut words = [0; 256];
            loop {
                match self.pipe.read(&mut words).await? {
                    0 => return Ok(true),
                    _ => self.was_up = true,
                }
            }
        };
        tokio::time::timeout(budget, reading)
            .await
            .unwrap_or(Ok(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&place.path().join(PIPE), mode).unwrap();
        place
    }

    fn holder(place: &Path, body: &str) -> Child {
        Command::new("sh")
            .args(["-c", &format!("exec > {PIPE}; echo up; {body}")])
            .current_dir(place)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    async fn each_fate_is_told_from_the_others() {
        let nobody = place();
        let mut pulse = Pulse::of(nobody.path()).unwrap();
        assert_eq!(pulse.fate().await.unwrap(), Fate::NeverUp);

        let dead = place();
        let mut pulse = Pulse::of(dead.path()).unwrap();
        holder(dead.path(), ":").wait().unwrap();
        assert_eq!(pulse.fate().await.unwrap(), Fate::DiedWithItsAgent);

        let obeys = place();
        let mut pulse = Pulse::of(obeys.path()).unwrap();
        let mut child = holder(obeys.path(), "while [ ! -e stop ]; do sleep 0.1; done");
        assert_eq!(pulse.fate().await.unwrap(), Fate::EndedByTheDemo);
        child.wait().unwrap();

        let stays = place();
        let mut pulse = Pulse::of(stays.path()).unwrap();
        let mut child = holder(stays.path(), "exec sleep 60");
        assert_eq!(pulse.fate().await.unwrap(), Fate::StillThere);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
