//! A program that lives beside its agent and is spoken to, held by the keeper as a command is:
//! with the same files, network and environment, and ended with everything that it has started.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use confine::keeper::CommandSpec;
use protocol::secret::Mask;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::timeout;

use super::environment::for_commands;
use super::keeping::Keeping;
use super::report::Report;
use super::world::CommandWorld;
use crate::tools::limits;

/// What to start, and what it finds around it.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// The program, a path or a name for the environment's PATH, and its arguments.
    pub(crate) argv: Vec<OsString>,
    /// Where; absolute.
    pub(crate) directory: PathBuf,
    /// Variables that it must not see, beside those that look like keys.
    pub(crate) hidden_env: Vec<String>,
    /// What commands find around them.
    pub(crate) world: CommandWorld,
    /// Variables of its own, which may look like keys.
    pub(crate) own_env: Secrets,
    /// What stands in nothing that is kept of it.
    pub(crate) mask: Mask,
}

/// Variables with their values, which are shown to nobody.
#[derive(Clone)]
pub(crate) struct Secrets(pub(crate) Vec<(String, String)>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// A program that was started, with its standard streams.
#[derive(Debug)]
pub(crate) struct Lasting {
    pub(crate) stdin: Sender,
    pub(crate) stdout: Receiver,
    pub(crate) stderr: Receiver,
    pub(crate) held: Held,
}

/// Its life: dropping it kills the program with everything that it has started.
#[derive(Debug)]
pub(crate) struct Held(Report);

impl Held {
    /// Kills it, and waits until all of it is gone; what the keeper told of it when it could not
    /// be started.
    pub(crate) async fn end(mut self) -> Option<String> {
        let wait = Duration::from_millis(limits::KILL_WAIT_MS);
        // A hang-up fails only where the other side is gone already.
        let gone = async {
            self.0.hang_up().await.ok();
            self.0.ended().await
        };
        match timeout(wait, gone).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the end of a program was not told"),
            Err(_) => tracing::warn!("a program lives on although it was killed"),
        }
        self.0.told().failed.map(|failed| failed.message)
    }
}

/// Has the keeper start it. What the keeper refuses shows as the end of its output.
///
/// # Errors
/// When there is no keeper, or it can't be asked; in words.
pub(crate) fn start_lasting(keeping: &Keeping, recipe: &Recipe) -> Result<Lasting, String> {
    let Keeping::Keeper(client) = keeping else {
        return Err(
            "it is started only where a PID namespace holds the agent (an agent of `leader`, on \
             the rung `pidns` or above; `leader doctor` says what stands in the way)"
                .to_owned(),
        );
    };
    let system = |error: io::Error| format!("the system gave it no streams: {error}");
    let (their_stdin, stdin) = io::pipe().map_err(system)?;
    let (stdout, their_stdout) = io::pipe().map_err(system)?;
    let (stderr, their_stderr) = io::pipe().map_err(system)?;
    let stdin = Sender::from_owned_fd(OwnedFd::from(stdin)).map_err(system)?;
    let stdout = Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(system)?;
    let stderr = Receiver::from_owned_fd(OwnedFd::from(stderr)).map_err(system)?;
    let mut spec = CommandSpec::new(recipe.argv.clone(), recipe.directory.clone());
    spec.env = environment(recipe, std::env::vars_os());
    let report = client
        .start(
            &spec,
            their_stdin.as_fd(),
            their_stdout.as_fd(),
            their_stderr.as_fd(),
        )
        .map_err(|error| error.to_string())?;
    Ok(Lasting {
        stdin,
        stdout,
        stderr,
        held: Held(Report::new(report).map_err(system)?),
    })
}

/// The environment of commands, and its own variables.
fn environment(
    recipe: &Recipe,
    ours: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let own = &recipe.own_env.0;
    let is_own = |name: &OsString| own.iter().any(|(known, _)| name == known.as_str());
    let mut all = for_commands(ours, &recipe.hidden_env, &recipe.world);
    // The key of the model is nobody else's, whoever names it.
    let is_hidden = |name: &String| recipe.hidden_env.contains(name);
    all.retain(|(name, _)| !is_own(name) && name != "PWD");
    all.push(("PWD".into(), recipe.directory.clone().into()));
    let own = own.iter().filter(|(name, _)| !is_hidden(name));
    all.extend(own.map(|(name, value)| (name.into(), value.into())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gets_its_own_variables_and_never_the_key_of_the_model() {
        let text = str::to_owned;
        let recipe = Recipe {
            argv: vec!["a".into()],
            directory: "/w".into(),
            hidden_env: vec![text("MODEL_KEY")],
            world: CommandWorld::default(),
            own_env: Secrets(vec![
                (text("A_TOKEN"), text("hidden-words")),
                (text("MODEL_KEY"), text("never")),
            ]),
            mask: Mask::default(),
        };
        let ours = [
            ("A_TOKEN", "old"),
            ("B_TOKEN", "b"),
            ("MODEL_KEY", "key"),
            ("LANG", "C"),
        ];
        let ours = ours.map(|(name, value)| (name.into(), value.into()));
        let all = environment(&recipe, ours.into_iter());
        let values = |name: &str| {
            let found = all.iter().filter(|(known, _)| known == name);
            found
                .map(|(_, value)| value.to_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(values("A_TOKEN"), ["hidden-words"]);
        assert_eq!(values("B_TOKEN"), Vec::<&str>::new());
        assert_eq!(values("MODEL_KEY"), Vec::<&str>::new());
        assert_eq!(values("LANG"), ["C"]);
        assert_eq!(values("PWD"), ["/w"]);
        assert!(!format!("{recipe:?}").contains("hidden-words"));
    }

    #[test]
    fn without_a_keeper_nothing_is_started() {
        let keeping = Keeping::Group {
            why: "a test wants it so".to_owned(),
        };
        let recipe = Recipe {
            argv: vec!["true".into()],
            directory: "/".into(),
            hidden_env: Vec::new(),
            world: CommandWorld::default(),
            own_env: Secrets(Vec::new()),
            mask: Mask::default(),
        };
        let why = start_lasting(&keeping, &recipe).unwrap_err();
        assert!(why.contains("leader doctor"), "{why}");
    }
}
