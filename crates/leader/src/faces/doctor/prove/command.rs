//! Carries the proof out, rung by rung.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use confine::probe::Probe;
use confine::report::{KillReach, Rung};
use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use serde_json::json;

use crate::cli::DoctorArgs;
use crate::driver::StartError;
use crate::faces::console::{Console, code_of};
use crate::faces::doctor::prove::attempts::{self, Attempts, Modes, Sight};
use crate::faces::doctor::prove::proof::{Emptied, Ending, Proof, Round, RungProof};
use crate::faces::doctor::prove::secrets::{self, Found};
use crate::faces::doctor::prove::stage::{FOLDER, Stage, StageOrder};
use crate::faces::doctor::prove::trees::{self, ESCAPES_PER_AGENT, Trees};
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::faces::surroundings::Surroundings;
use crate::os::clock;
use crate::os::programs::{Programs, SpawnProblem};
use crate::os::rung::{self, Wanted, shortfall};
use crate::render::proof::proof_text;
use crate::settings::Variables;

/// The agent that is terminated.
const TERMINATED: u32 = 1;
/// The agents whose leader is killed.
const ORPHANED: [u32; 3] = [2, 3, 4];
/// The agent that tries to write and to connect, and where it leaves what it delivers.
const TRYING: u32 = 1;
const DELIVERABLES: &str = "sub_agent_results/agent_1";
/// How long all processes may take until they are up.
const UP_MS_MAX: u64 = 15_000;
/// How long after a kill a process counts as a survivor.
const GONE_MS_MAX: u64 = 3_000;
/// After so long no further rung is begun, so that the whole stays below ten seconds.
const BEGIN_MS_MAX: u64 = 5_000;

/// Shows on this machine that nothing outlives an agent or its leader, and that the key of an
/// agent's model is nowhere where its commands could read it, and that they write and reach no more
/// than they may.
///
/// # Errors
/// When the machine is not fit, or the required confinement can't be had.
pub async fn prove(
    args: &DoctorArgs,
    surroundings: &Surroundings,
    programs: &Programs,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let settings = surroundings.settings(Vec::new(), console)?;
    let wanted = Wanted::of(&settings);
    let spawn = |problem: SpawnProblem| {
        ToolError::new(ErrorCode::SpawnFailed, problem.to_string()).hint(problem.hint())
    };
    programs.check().map_err(spawn)?;
    let mut interrupts = Interrupts::listen().map_err(|error| {
        ToolError::new(ErrorCode::Io, format!("signals can't be caught: {error}"))
    })?;
    let begin = clock::now();
    let mut proof = Proof {
        rungs: Vec::new(),
        took: Duration::ZERO,
    };
    for highest in rungs_to_prove(programs, &wanted).await? {
        let late = begin.elapsed() > Duration::from_millis(BEGIN_MS_MAX);
        if late && !proof.rungs.is_empty() {
            break;
        }
        let setting = Setting {
            programs,
            variables: &surroundings.variables,
            wanted: &wanted,
            highest,
        };
        console.live(&format!("killing agents on {highest} …"));
        let mut shown = match on_stage(&setting.kills(), &mut interrupts, show).await? {
            Outcome::Shown(shown) => shown,
            Outcome::Interrupted(interrupt) => return Ok(interrupt.exit_code()),
        };
        console.live(&format!("writing and connecting on {highest} …"));
        for modes in Modes::BOTH {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_port)?;
            let order = setting.attempts(modes, &listener).map_err(no_port)?;
            let tries = async |stage: &mut Stage| attempt(stage, modes, &listener).await;
            match on_stage(&order, &mut interrupts, tries).await? {
                Outcome::Shown(attempts) => shown.attempts.push(attempts),
                Outcome::Interrupted(interrupt) => return Ok(interrupt.exit_code()),
            }
        }
        proof.rungs.push(shown);
    }
    console.clear_live();
    proof.took = begin.elapsed();
    let text = match args.json {
        true => format!("{}\n", proof.to_json()),
        false => proof_text(&proof, console.look().out),
    };
    console.show(&text, args.json)?;
    Ok(match proof.holds() {
        true => exit::SUCCESS,
        false => exit::FAILURE,
    })
}

/// The rung in force, then each lower one that promises to hold what escapes.
async fn rungs_to_prove(programs: &Programs, wanted: &Wanted) -> Result<Vec<Rung>, ToolError> {
    let in_force = look(programs, wanted).await?;
    if let Some(short) = shortfall(wanted.require, &in_force) {
        return Err(StartError::Confinement(Box::new(short)).to_tool_error());
    }
    let in_force = in_force.confinement.rung;
    let mut rungs = vec![in_force];
    for lower in Rung::ALL.into_iter().rev() {
        if lower >= in_force || lower == Rung::Group {
            continue;
        }
        let wanted = Wanted {
            highest: lower,
            ..wanted.clone()
        };
        let found = look(programs, &wanted).await?.confinement;
        if found.rung == lower && found.kill != KillReach::Group {
            rungs.push(lower);
        }
    }
    Ok(rungs)
}

async fn look(programs: &Programs, wanted: &Wanted) -> Result<Probe, ToolError> {
    let (jail, wanted) = (programs.jail.clone(), wanted.clone());
    let looked = tokio::task::spawn_blocking(move || rung::find(&jail, &wanted)).await;
    looked
        .map_err(|error| ToolError::new(ErrorCode::Internal, error.to_string()))?
        .map_err(|error| StartError::Probe(error).to_tool_error())
}

/// What all stages of a rung have in common.
#[derive(Debug, Clone, Copy)]
struct Setting<'a> {
    programs: &'a Programs,
    variables: &'a Variables,
    wanted: &'a Wanted,
    highest: Rung,
}

impl<'a> Setting<'a> {
    /// Agents that look for their key, and escape.
    fn kills(self) -> StageOrder<'a> {
        let command = format!(
            "{}; {}",
            secrets::command(FOLDER, "{agent_id}"),
            trees::command(FOLDER, "{agent_id}"),
        );
        let call = json!({"name": "run_command", "arguments": {"command": command}});
        StageOrder {
            programs: self.programs,
            variables: self.variables,
            wanted: self.wanted,
            highest: self.highest,
            agents: 1 + ORPHANED.len(),
            replies: vec![json!({"tool_calls": [call]})],
            confinement: String::new(),
            guarded: false,
        }
    }

    /// One agent that tries to write, and to connect to the listener.
    fn attempts(self, modes: Modes, listener: &TcpListener) -> io::Result<StageOrder<'a>> {
        let port = listener.local_addr()?.port();
        Ok(StageOrder {
            agents: 1,
            replies: attempts::replies(FOLDER, DELIVERABLES, port),
            confinement: modes.config(),
            guarded: true,
            ..self.kills()
        })
    }
}

/// What became of what was to be shown on a stage.
enum Outcome<T> {
    Shown(T),
    Interrupted(Interrupt),
}

/// Sets the stage, and clears it again whatever happens on it.
async fn on_stage<T>(
    order: &StageOrder<'_>,
    interrupts: &mut Interrupts,
    show: impl AsyncFnOnce(&mut Stage) -> Result<T, ToolError>,
) -> Result<Outcome<T>, ToolError> {
    let mut stage = Stage::open(order).await?;
    let outcome = tokio::select! {
        shown = show(&mut stage) => shown.map(Outcome::Shown),
        interrupt = interrupts.next() => Ok(Outcome::Interrupted(interrupt)),
    };
    let ended = stage.end().await;
    let outcome = outcome?;
    ended?;
    Ok(outcome)
}

/// Terminates one agent, then kills the leader of the others.
async fn show(stage: &mut Stage) -> Result<RungProof, ToolError> {
    let folder = stage.folder();
    let mut one = pipes(&folder, &[TERMINATED])?;
    let mut others = pipes(&folder, &ORPHANED)?;
    for agent in [TERMINATED].into_iter().chain(ORPHANED) {
        stage.create(agent).await?;
    }
    let budget = Duration::from_millis(UP_MS_MAX);
    let end = clock::now() + budget;
    let mut missing = 0;
    for group in [&mut one, &mut others] {
        let left = end.saturating_duration_since(clock::now());
        missing += blocking(group, move |trees| trees.wait_up(left)).await?;
    }
    if missing > 0 {
        return Err(ToolError::new(
            ErrorCode::TimedOut,
            format!(
                "{missing} of {} escaping processes were not up within {} s",
                one.processes() + others.processes(),
                budget.as_secs()
            ),
        )
        .hint("they need `sh`, `setsid`, `timeout`, `sleep` and `date` on the PATH"));
    }
    let mut key = Found::default();
    for agent in [TERMINATED].into_iter().chain(ORPHANED) {
        secrets::add_look(&mut key, &folder, agent).map_err(|error| no_look(&error))?;
    }
    let confinement = stage.confinement(TERMINATED).await?;
    let terminated = terminate(stage, &mut one).await?;
    let since = clock::now();
    stage.kill()?;
    let killed = watch(&mut others, since).await?;
    secrets::add_files(&mut key, stage.place(), stage.key());
    Ok(RungProof {
        rung: confinement["rung"].as_str().unwrap_or("unknown").to_owned(),
        confinement,
        rounds: vec![
            Round::new(Ending::Terminated, 1, ESCAPES_PER_AGENT, terminated),
            Round::new(
                Ending::LeaderKilled,
                ORPHANED.len(),
                others.processes(),
                killed,
            ),
        ],
        key,
        attempts: Vec::new(),
    })
}

/// Lets one agent try what it may not.
async fn attempt(
    stage: &mut Stage,
    modes: Modes,
    listener: &TcpListener,
) -> Result<Attempts, ToolError> {
    let workspace = stage.workspace();
    let before = Sight::of(&workspace);
    let result = stage.run(TRYING).await?;
    let sights = (&before, &Sight::of(&workspace));
    let written = workspace.join(DELIVERABLES);
    attempts::judge(modes, sights, &result, &written, listener).map_err(|error| {
        let text = format!("a command could not try to write and to connect: {error}");
        ToolError::new(code_of(&error), text).hint("it needs `sh` and `timeout` on the PATH")
    })
}

fn no_port(error: io::Error) -> ToolError {
    let text = format!("no port could be opened for commands to connect to: {error}");
    ToolError::new(code_of(&error), text)
}

/// Watches the trees while the call that ends them is under way.
async fn terminate(stage: &mut Stage, trees: &mut Trees) -> Result<Emptied, ToolError> {
    let since = clock::now();
    let (emptied, ended) = tokio::join!(watch(trees, since), stage.terminate(TERMINATED));
    ended?;
    emptied
}

async fn watch(trees: &mut Trees, since: Instant) -> Result<Emptied, ToolError> {
    let budget = Duration::from_millis(GONE_MS_MAX);
    blocking(trees, move |trees| trees.wait_gone(since, budget)).await
}

fn pipes(folder: &Path, agents: &[u32]) -> Result<Trees, ToolError> {
    Trees::new(folder, agents).map_err(|error| no_pipes(&error))
}

fn no_look(error: &std::io::Error) -> ToolError {
    ToolError::new(
        code_of(error),
        format!("a command could not look for the key: {error}"),
    )
    .hint("it needs `sh`, `env`, `cat`, `tr` and `grep` on the PATH")
}

fn no_pipes(error: &std::io::Error) -> ToolError {
    ToolError::new(
        code_of(error),
        format!("the pipes that tell of survivors can't be used: {error}"),
    )
    .hint("TMPDIR names a directory on a file system that has named pipes")
}

/// Looks at pipes in a thread of its own. They come back from it, also after an error.
async fn blocking<T: Send + 'static>(
    trees: &mut Trees,
    look: impl FnOnce(&mut Trees) -> std::io::Result<T> + Send + 'static,
) -> Result<T, ToolError> {
    let mut lent = trees.lend();
    let looked = tokio::task::spawn_blocking(move || {
        let outcome = look(&mut lent);
        (lent, outcome)
    });
    let (back, outcome) = looked
        .await
        .map_err(|error| ToolError::new(ErrorCode::Internal, error.to_string()))?;
    *trees = back;
    outcome.map_err(|error| no_pipes(&error))
}
