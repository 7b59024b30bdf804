//! Looks at everything that a conversation would need, and starts none.

use std::path::Path;

use confine::probe::Probe;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use protocol::channel::ModelAccess;
use protocol::config::{Layers, Settings, api_key, resolve};
use protocol::error::{ErrorCode, ToolError};
use protocol::job::{ModelSpec, Provider};

use crate::driver::StartError;
use crate::faces::doctor::report::{
    ConfigFileReport, ConfigReport, ConfinementReport, ModelReport, Problem, ProgramReport,
    Reached, Report, WorkspaceReport,
};
use crate::faces::surroundings::Surroundings;
use crate::os::model_check::{self, Asked};
use crate::os::programs::{Program, Programs, check_program};
use crate::os::rung::{self, Wanted};
use crate::os::version::{self, Answer};
use crate::settings::{Variables, choose_model, config_files, load};

/// Less room than this for what agents write is worth a warning.
pub const FREE_BYTES_LOW: u64 = 256 << 20;

/// Whether the model is asked for a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskModel {
    /// Once.
    Once,
    /// Not at all.
    No,
}

/// Looks at all of it. Takes a second at most, unless an executable or the model does not answer.
pub async fn look(surroundings: &Surroundings, programs: &Programs, ask: AskModel) -> Report {
    let Surroundings {
        workspace,
        variables,
    } = surroundings;
    let (settings, config) = look_at_config(workspace, variables);
    let worker = look_at_worker(programs, workspace).await;
    let jail = look_at_jail(programs).await;
    let confinement = look_at_confinement(&settings, programs).await;
    // A local server may be looked for, which waits for its answer.
    let chosen = {
        let variables = variables.clone();
        let chosen = tokio::task::spawn_blocking(move || choose_model(&settings, &variables)).await;
        chosen.unwrap_or_else(|error| {
            let message = format!("the look at the model failed: {error}");
            Err(ToolError::new(ErrorCode::Internal, message))
        })
    };
    let model = match chosen {
        Ok(spec) => {
            let fit = worker.problem.is_none() && jail.problem.is_none();
            let reached = match refusal_to_ask(ask, &spec, fit) {
                Some(why) => (not_asked(why), None),
                None => ask_model(programs, surroundings, spec.clone()).await,
            };
            model_report(spec, reached)
        }
        Err(error) => no_model(&error),
    };
    let workspace = look_at_workspace(workspace);
    let warnings = version_warning(&worker)
        .into_iter()
        .chain(room_warning(workspace.free_bytes))
        .collect();
    Report {
        version: env!("CARGO_PKG_VERSION"),
        kernel: kernel(),
        workspace,
        programs: vec![worker, jail],
        confinement,
        config,
        model,
        warnings,
    }
}

/// The kernel's release, as `uname -r` tells it.
fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Settings to go on with, also where the configuration can't be used.
fn look_at_config(workspace: &Path, variables: &Variables) -> (Settings, ConfigReport) {
    let files = config_files(workspace, variables)
        .into_iter()
        .map(|path| ConfigFileReport {
            present: path.exists(),
            path,
        })
        .collect();
    let (settings, problem) = match load(workspace, variables, Vec::new()) {
        Ok(settings) => (settings, None),
        Err(error) => (built_in(), Some(Problem::from(error))),
    };
    let values = settings
        .sources
        .iter()
        .filter(|(_, source)| *source != "built-in")
        .map(|(key, source)| (key.clone(), source.clone()))
        .collect();
    let report = ConfigReport {
        files,
        values,
        warnings: settings.warnings.clone(),
        problem,
    };
    (settings, report)
}

fn built_in() -> Settings {
    resolve(&Layers::default()).expect("a test of the configuration reads the built-in values")
}

fn look_at_workspace(path: &Path) -> WorkspaceReport {
    let free_bytes = statvfs(path)
        .ok()
        .map(|stat| stat.fragment_size().saturating_mul(stat.blocks_available()));
    let problem = access(path, AccessFlags::W_OK | AccessFlags::X_OK)
        .err()
        .map(|errno| Problem {
            message: format!(
                "the workspace `{}` can't be written: {}",
                path.display(),
                errno.desc()
            ),
            hint: "name another with `-C DIR`, or mend its permissions".to_owned(),
        });
    WorkspaceReport {
        path: path.to_path_buf(),
        free_bytes,
        problem,
    }
}

async fn look_at_worker(programs: &Programs, workspace: &Path) -> ProgramReport {
    let path = &programs.worker;
    let found = check_program(Program::Worker, path);
    let (version, problem) = match found {
        Err(problem) => (None, Some(problem_of(&problem.to_string(), problem.hint()))),
        // Without a jail it would have to be started unconfined, which is never done.
        Ok(()) if check_program(Program::Jail, &programs.jail).is_err() => (None, None),
        Ok(()) => told(
            "worker",
            version::of_worker(&programs.jail, path, workspace).await,
        ),
    };
    ProgramReport {
        name: "worker",
        path: path.clone(),
        version,
        problem,
    }
}

async fn look_at_jail(programs: &Programs) -> ProgramReport {
    let path = &programs.jail;
    let (version, problem) = match check_program(Program::Jail, path) {
        Err(problem) => (None, Some(problem_of(&problem.to_string(), problem.hint()))),
        Ok(()) => told("jail", version::of_jail(path).await),
    };
    ProgramReport {
        name: "jail",
        path: path.clone(),
        version,
        problem,
    }
}

fn problem_of(message: &str, hint: String) -> Problem {
    Problem {
        message: message.to_owned(),
        hint,
    }
}

/// The version in an answer, or why there can be none.
fn told(name: &str, answer: Answer) -> (Option<String>, Option<Problem>) {
    match answer {
        Answer::Version(version) => (Some(version), None),
        Answer::Silent => (None, None),
        Answer::NotStarted(why) => {
            let message = format!("`{name}` can't be started: {why}");
            let hint = "`cargo build --release` makes executables that fit each other".to_owned();
            (None, Some(problem_of(&message, hint)))
        }
    }
}

async fn look_at_confinement(settings: &Settings, programs: &Programs) -> ConfinementReport {
    let wanted = Wanted::of(settings);
    let mut report = ConfinementReport {
        required: settings.require.to_string(),
        highest: settings.highest.to_string(),
        cgroup: settings.cgroup.clone(),
        enforced: None,
        next: None,
        obstacles: Vec::new(),
        shortfall: None,
        problem: None,
    };
    if check_program(Program::Jail, &programs.jail).is_err() {
        // What is wrong with it is told beside its name.
        return report;
    }
    let (jail, asked) = (programs.jail.clone(), wanted.clone());
    match tokio::task::spawn_blocking(move || rung::find(&jail, &asked)).await {
        Ok(Ok(found)) => take_found(&mut report, &wanted, found),
        Ok(Err(error)) => {
            let error = StartError::Probe(error);
            report.problem = Some(problem_of(&error.to_string(), error.hint()));
        }
        Err(error) => {
            report.problem = Some(problem_of(&error.to_string(), String::new()));
        }
    }
    report
}

fn take_found(report: &mut ConfinementReport, wanted: &Wanted, found: Probe) {
    report.next = rung::next(&found).cloned();
    report.shortfall = rung::shortfall(wanted.require, &found).map(|short| {
        let error = StartError::Confinement(Box::new(short));
        problem_of(&error.to_string(), error.hint())
    });
    report.enforced = Some(found.confinement);
    report.obstacles = found.obstacles;
}

/// Why a model is not asked; none where it is.
fn refusal_to_ask(ask: AskModel, spec: &ModelSpec, fit: bool) -> Option<&'static str> {
    match (spec.provider, ask, fit) {
        (Provider::Script, _, _) => Some("a script is a file, not a server"),
        (_, AskModel::No, _) => Some("--no-model"),
        (_, AskModel::Once, false) => Some("no worker can be started to ask it"),
        (_, AskModel::Once, true) => None,
    }
}

fn not_asked(why: &str) -> Reached {
    Reached::NotAsked {
        why: why.to_owned(),
    }
}

/// One tiny request, made by a worker.
async fn ask_model(
    programs: &Programs,
    surroundings: &Surroundings,
    spec: ModelSpec,
) -> (Reached, Option<Problem>) {
    let lookup = |name: &str| surroundings.variables.lookup(name);
    let access = match api_key(&spec, &lookup) {
        Ok(api_key) => ModelAccess { spec, api_key },
        Err(error) => {
            let problem = Problem::from(error.to_tool_error());
            return (not_asked("its key is missing"), Some(problem));
        }
    };
    let Programs { jail, worker } = programs;
    let asked = model_check::ask(jail, worker, &surroundings.workspace, &access).await;
    told_of_model(asked, &access.spec)
}

fn told_of_model(asked: Asked, spec: &ModelSpec) -> (Reached, Option<Problem>) {
    match asked {
        Asked::NotKnown(why) => (not_asked(&why), None),
        Asked::Told(check) => {
            let took_ms = check.took_ms;
            match check.failure {
                None => (Reached::Answered { took_ms }, None),
                Some(failure) => {
                    let message = format!("model `{}` does not answer: {failure}", spec.key);
                    (
                        Reached::Failed { took_ms },
                        Some(problem_of(&message, hint_for(spec))),
                    )
                }
            }
        }
    }
}

/// Where to look when a model does not answer.
fn hint_for(spec: &ModelSpec) -> String {
    let key = match &spec.api_key_env {
        Some(variable) => format!(", the key in {variable}"),
        None => String::new(),
    };
    format!(
        "check that `{}` is up and right{key}, and that it has `{}`; `leader config` says where \
         these are set, `leader doctor --no-model` looks at the rest alone",
        spec.base_url, spec.model
    )
}

fn model_report(spec: ModelSpec, (reached, problem): (Reached, Option<Problem>)) -> ModelReport {
    ModelReport {
        key: Some(spec.key),
        provider: Some(provider_word(spec.provider).to_owned()),
        server: match spec.provider {
            Provider::Script => None,
            Provider::Openai | Provider::Anthropic => Some(spec.base_url),
        },
        model: Some(spec.model),
        key_variable: spec.api_key_env,
        reached,
        problem,
    }
}

fn provider_word(provider: Provider) -> &'static str {
    match provider {
        Provider::Openai => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Script => "script",
    }
}

fn no_model(error: &ToolError) -> ModelReport {
    ModelReport {
        key: None,
        provider: None,
        server: None,
        model: None,
        key_variable: None,
        reached: not_asked("there is none"),
        problem: Some(problem_of(&error.message, error.hint.clone())),
    }
}

/// A worker of ours must be of the leader's version; of a foreign one nothing is known.
fn version_warning(worker: &ProgramReport) -> Option<String> {
    let version = worker.version.as_deref()?.strip_prefix("worker ")?;
    let own = env!("CARGO_PKG_VERSION");
    (version != own).then(|| {
        let path = worker.path.display();
        format!("`{path}` has version {version}, this leader {own}")
    })
}

fn room_warning(free_bytes: Option<u64>) -> Option<String> {
    let free_bytes = free_bytes.filter(|free| *free < FREE_BYTES_LOW)?;
    Some(format!(
        "only {} MiB are free on the workspace's disk; agents fail when it is full",
        free_bytes >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::check::ModelCheck;
    use std::path::PathBuf;

    #[test]
    fn room_is_warned_of_below_the_limit_and_not_at_it() {
        assert_eq!(room_warning(None), None);
        assert_eq!(room_warning(Some(FREE_BYTES_LOW)), None);
        assert_eq!(
            room_warning(Some(FREE_BYTES_LOW - 1)).unwrap(),
            "only 255 MiB are free on the workspace's disk; agents fail when it is full"
        );
    }

    #[test]
    fn a_worker_of_another_version_is_told_and_a_foreign_one_is_not() {
        let worker = |version: &str| ProgramReport {
            name: "worker",
            path: PathBuf::from("/w"),
            version: Some(version.to_owned()),
            problem: None,
        };
        let own = concat!("worker ", env!("CARGO_PKG_VERSION"));
        assert_eq!(version_warning(&worker(own)), None);
        assert_eq!(version_warning(&worker("mine 3")), None);
        let told = version_warning(&worker("worker 9.9")).unwrap();
        assert!(
            told.starts_with("`/w` has version 9.9, this leader "),
            "{told}"
        );
    }

    #[test]
    fn a_model_is_asked_only_where_there_is_a_server_and_somebody_to_ask_it() {
        let spec = |provider| ModelSpec::new("m", provider, "http://h/v1", "big");
        let (server, script) = (spec(Provider::Openai), spec(Provider::Script));
        assert_eq!(refusal_to_ask(AskModel::Once, &server, true), None);
        for (ask, spec, fit) in [
            (AskModel::No, &server, true),
            (AskModel::Once, &server, false),
            (AskModel::Once, &script, true),
        ] {
            assert!(refusal_to_ask(ask, spec, fit).is_some());
        }
    }

    #[test]
    fn a_model_that_does_not_answer_is_a_problem_and_one_that_can_t_be_asked_is_not() {
        let mut spec = ModelSpec::new("m", Provider::Openai, "http://h/v1", "big");
        spec.api_key_env = Some("MY_KEY".to_owned());
        let told = |failure: Option<&str>| {
            let check = ModelCheck::new(7, failure.map(str::to_owned));
            told_of_model(Asked::Told(check), &spec)
        };
        assert_eq!(told(None), (Reached::Answered { took_ms: 7 }, None));
        let (reached, problem) = told(Some("401"));
        assert_eq!(reached, Reached::Failed { took_ms: 7 });
        let problem = problem.unwrap();
        assert_eq!(problem.message, "model `m` does not answer: 401");
        for word in ["http://h/v1", "MY_KEY", "big"] {
            assert!(problem.hint.contains(word), "{}", problem.hint);
        }
        let unknown = told_of_model(Asked::NotKnown("foreign".to_owned()), &spec);
        assert_eq!(unknown, (not_asked("foreign"), None));
    }

    #[test]
    fn the_system_tells_its_kernel_and_the_room_of_a_disk() {
        assert!(kernel().contains('.'), "{}", kernel());
        let report = look_at_workspace(Path::new("/"));
        assert!(report.free_bytes.is_some());
        let missing = look_at_workspace(Path::new("/no/such/place"));
        assert!(missing.problem.unwrap().message.contains("/no/such/place"));
    }
}
