//! A time of day that a test sets, for programs that ask the C library for it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::workspace::Workspace;

/// A library that is loaded before the C library and adds to the time of day what a file says; the
/// steady clocks stay as they are.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) {
    char text[32] = {0};
    const char *path = getenv("WALL_CLOCK_OFFSET");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t id, struct timespec *ts) {
    int done = syscall(SYS_clock_gettime, id, ts);
    if (done == 0 && id == CLOCK_REALTIME) ts->tv_sec += offset();
    return done;
}
int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    int done = syscall(SYS_gettimeofday, tv, tz);
    if (done == 0 && tv) tv->tv_sec += offset();
    return done;
}
time_t time(time_t *out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
"#;

/// The time of day of a workspace's programs.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// Makes one that is right so far.
    ///
    /// # Errors
    /// In words, when this machine has no C compiler.
    pub fn of(workspace: &Workspace) -> Result<WallClock, String> {
        // In the workspace, which workers see as well.
        let (source, library) = (
            workspace.join("wall_clock.c"),
            workspace.join("wall_clock.so"),
        );
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .output()
            .map_err(|error| format!("no `cc`: {error}"))?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        let clock = WallClock {
            library,
            offset: workspace.join("wall_clock.offset"),
        };
        clock.jump(0);
        Ok(clock)
    }

    /// Lets a command, and what it starts, live by this clock.
    pub fn rule(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("WALL_CLOCK_OFFSET", &self.offset);
    }

    /// Sets the time of day to so many seconds beside the real one.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn jump(&self, seconds: i64) {
        // Put in place as a whole: it is read at any moment.
        let next = self.offset.with_extension("next");
        fs::write(&next, seconds.to_string()).expect("a file of ours");
        fs::rename(&next, &self.offset).expect("a file of ours");
    }
}
