//! Headers of a model that the user configured: a gateway's tenant or a licence may be as secret
//! as a key, under a name that does not tell.

use std::path::Path;
use std::time::Duration;

use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Ended, Turn, Workspace, run};

const BUDGET: Duration = Duration::from_secs(60);
const VALUE: &str = "Zq8tenant4711value";

fn configure(workspace: &Workspace, server: &ModelServer, headers: &str) {
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\n\
         base_url = \"{}\"\n{headers}\n",
        server.base_url()
    ));
}

/// The files under a folder that hold the value, and how many were looked at.
fn holding(folder: &Path, found: &mut Vec<String>) -> usize {
    let mut looked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            looked += holding(&path, found);
        } else if kind.is_file() {
            looked += 1;
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(VALUE.len()).any(|it| it == VALUE.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    looked
}

/// How many requests carried the header.
fn carried(server: &ModelServer) -> usize {
    let line = format!("x-tenant: {}", VALUE.to_ascii_lowercase());
    let heads = server.heads();
    let with = |head: &&String| head.to_ascii_lowercase().lines().any(|it| it == line);
    heads.iter().filter(with).count()
}

/// Values of custom headers once stood in the job of every run, readable by its agent.
#[test]
fn values_of_headers_reach_the_model_and_no_file_of_the_run() {
    let told = "the header was needed and nothing else was done here";
    let server = ModelServer::start(Behaviour::Turns(vec![Turn::finish(told)]));
    let workspace = Workspace::new();
    configure(
        &workspace,
        &server,
        &format!("headers = {{ X-Tenant = \"{VALUE}\" }}"),
    );
    let mut command = workspace.command("leader");
    command.args([
        "run",
        "--stream-json",
        "--summary",
        "asks through a gateway",
    ]);
    let ended = run(command.arg("do it"), BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(carried(&server), server.requests().len());

    let job = workspace.join("sub_agent_results/agent_1/.subagent/job.json");
    let again = |expected: i32| {
        let mut command = workspace.command("worker");
        let ended: Ended = run(command.arg("--job").arg(&job), BUDGET);
        assert_eq!(ended.code(), expected, "{ended:?}");
        ended.stdout + &ended.stderr
    };
    // What the job does not tell is taken from where its user keeps it.
    let said = again(0);
    assert!(carried(&server) >= 2, "{:?}", server.heads());
    assert_eq!(carried(&server), server.requests().len());

    let mut found = Vec::new();
    assert!(holding(&workspace.path(), &mut found) >= 5);
    holding(&workspace.home(), &mut found);
    let own = workspace.home().join(".config/muster/muster.toml");
    assert_eq!(found, [own.display().to_string()]);
    for text in [&ended.stdout, &ended.stderr, &said] {
        assert!(!text.contains(VALUE), "{text}");
    }

    configure(&workspace, &server, "");
    let said = again(2);
    assert!(
        said.contains("model `m` is configured without the header `X-Tenant`"),
        "{said}"
    );
}
