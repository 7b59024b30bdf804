//! Reads the layers of the configuration from where they lie, and chooses the model.
//!
//! What the layers mean is `protocol::config`'s business; here are the files, the environment and
//! the look for a local model server.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::config::{
    ConfigError, ConfigFile, FileTrust, Flag, Layers, Settings, Wish, resolve, select_model,
    trust_dir, wishes,
};
use protocol::error::{ErrorCode, ToolError};
use protocol::job::ModelSpec;
use protocol::limits::CONFIG_BYTES_MAX;

use crate::driver::Environment;
use crate::store::trust::TrustStore;

/// Names another file than the user's own.
pub const CONFIG_VARIABLE: &str = "MUSTER_CONFIG";
/// The workspace's own file.
pub const WORKSPACE_FILE: &str = "muster.toml";
/// Where an Ollama listens unless it was told otherwise.
pub const OLLAMA_ADDRESS: &str = "127.0.0.1:11434";
/// How long it may take to connect to it.
const OLLAMA_CONNECT_MS: u64 = 200;
/// How long it may take to answer.
const OLLAMA_ANSWER_MS: u64 = 1_000;

/// The process's variables, read once. Values of variables may be secrets, so that they do not
/// show in its `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    variables: BTreeMap<String, String>,
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Variables {
    /// The environment of this process; what is not UTF-8 can't be a setting of ours.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// A variable's value, empty ones included.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A variable's value as an owned text, for callers that look up through a function.
    pub fn lookup(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// All of them, by name.
    pub fn pairs(&self) -> Vec<(String, String)> {
        self.variables.clone().into_iter().collect()
    }

    /// The same for the driver.
    pub fn to_environment(&self) -> Environment {
        Environment::of(self.variables.clone())
    }

    /// The same with one more, or with another value for one of them.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Whether a variable is set to something.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_empty())
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Variables {
            variables: variables.into_iter().collect(),
        }
    }
}

/// Where the user's file is, and whether it has to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum UserFile {
    /// Named by a variable: it must be there.
    Named(PathBuf),
    /// In its usual place: it may be missing.
    Usual(PathBuf),
    /// There is no home to look in.
    Nowhere,
}

fn user_file(variables: &Variables) -> UserFile {
    let filled = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    if let Some(named) = filled(CONFIG_VARIABLE) {
        return UserFile::Named(PathBuf::from(named));
    }
    // The XDG rules want a relative path ignored.
    let config_home = filled("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| filled("HOME").map(|home| Path::new(home).join(".config")));
    match config_home {
        Some(config_home) => UserFile::Usual(config_home.join("muster").join(WORKSPACE_FILE)),
        None => UserFile::Nowhere,
    }
}

/// Where the files of the configuration are looked for: the user's, if there is a place for it,
/// and the workspace's.
pub fn config_files(workspace: &Path, variables: &Variables) -> Vec<PathBuf> {
    let user = match user_file(variables) {
        UserFile::Named(path) | UserFile::Usual(path) => Some(path),
        UserFile::Nowhere => None,
    };
    let own = workspace.join(WORKSPACE_FILE);
    user.into_iter().chain([own]).collect()
}

/// Where the user's own decisions lie: the file of the configuration with what is beside it in our
/// folder, and the acceptances of workspaces. Whoever writes there grants himself what he likes.
pub fn own_places(variables: &Variables) -> Vec<PathBuf> {
    let config = match user_file(variables) {
        UserFile::Named(path) => Some(path),
        UserFile::Usual(path) => path.parent().map(Path::to_path_buf),
        UserFile::Nowhere => None,
    };
    let state = trust_dir(|name| variables.get(name).map(str::to_owned));
    let state = state
        .as_deref()
        .and_then(Path::parent)
        .map(Path::to_path_buf);
    config.into_iter().chain(state).collect()
}

/// Reads all layers and lays them over each other.
///
/// # Errors
/// When a file can't be read, or `protocol::config` refuses what stands in it.
pub fn load(
    workspace: &Path,
    variables: &Variables,
    flags: Vec<Flag>,
) -> Result<Settings, ToolError> {
    resolve(&layers(workspace, variables, flags)?).map_err(|error| error.to_tool_error())
}

fn layers(workspace: &Path, variables: &Variables, flags: Vec<Flag>) -> Result<Layers, ToolError> {
    let own = workspace.join(WORKSPACE_FILE);
    let file = read_config(&own)?;
    let trust = match (
        &file,
        TrustStore::of(|name| variables.lookup(name), workspace),
    ) {
        (Some(file), Ok(store)) => store.judge(&own, file.text.as_bytes()),
        // Where no acceptance could lie, there is none.
        (None, _) | (_, Err(_)) => FileTrust::Never,
    };
    Ok(Layers {
        user: read_user(variables)?,
        workspace: file,
        trust,
        variables: variables.pairs(),
        flags,
    })
}

fn read_user(variables: &Variables) -> Result<Option<ConfigFile>, ToolError> {
    match user_file(variables) {
        UserFile::Named(path) => Ok(Some(read_config(&path)?.ok_or_else(|| {
            ToolError::new(
                ErrorCode::InvalidParameters,
                format!(
                    "{CONFIG_VARIABLE} names `{}`, which is not there",
                    path.display()
                ),
            )
            .hint(format!("make that file, or unset {CONFIG_VARIABLE}"))
        })?)),
        UserFile::Usual(path) => read_config(&path),
        UserFile::Nowhere => Ok(None),
    }
}

/// The workspace's own file, as `leader trust` shows it.
#[derive(Debug)]
pub struct WorkspaceFile {
    /// Where it is or would be.
    pub path: PathBuf,
    /// Its content; none when it is not there.
    pub file: Option<ConfigFile>,
    /// How far it is trusted.
    pub trust: FileTrust,
    /// What it wants beyond tightening.
    pub wishes: Vec<Wish>,
}

/// Looks at the workspace's own file.
///
/// # Errors
/// As [`load`].
pub fn look_at_workspace(
    workspace: &Path,
    variables: &Variables,
) -> Result<WorkspaceFile, ToolError> {
    let layers = layers(workspace, variables, Vec::new())?;
    Ok(WorkspaceFile {
        path: workspace.join(WORKSPACE_FILE),
        wishes: wishes(&layers).map_err(|error| error.to_tool_error())?,
        file: layers.workspace,
        trust: layers.trust,
    })
}

/// Whether the configuration can be used with this content of the workspace's file accepted.
///
/// # Errors
/// When it can't.
pub fn check_accepted(variables: &Variables, file: &ConfigFile) -> Result<(), ToolError> {
    let layers = Layers {
        user: read_user(variables)?,
        workspace: Some(file.clone()),
        trust: FileTrust::Accepted { at: String::new() },
        variables: variables.pairs(),
        flags: Vec::new(),
    };
    resolve(&layers)
        .map(drop)
        .map_err(|error| error.to_tool_error())
}

/// One file, or none when it is not there.
fn read_config(path: &Path) -> Result<Option<ConfigFile>, ToolError> {
    let name = path.display().to_string();
    match read_small_file(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(ConfigFile { name, text })),
            Err(error) => Err(ToolError::new(
                ErrorCode::InvalidParameters,
                format!(
                    "{name} is not UTF-8: the first bad byte is number {}",
                    error.utf8_error().valid_up_to() + 1
                ),
            )),
        },
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(ToolError::new(
            ErrorCode::InvalidParameters,
            format!("{name} could not be read: {error}"),
        )
        .hint("it must be a regular file that you may read")),
    }
}

/// Reads a file up to one byte over the limit. A FIFO in its place, which a repository can't hold
/// but an agent could have made, must not make the leader wait.
fn read_small_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The model for agents whose creator names none. Without any, the refusal names three ways to go
/// on, and an Ollama that runs on this machine.
///
/// # Errors
/// When the choice is unknown or none is configured, or its key is missing.
pub fn choose_model(settings: &Settings, variables: &Variables) -> Result<ModelSpec, ToolError> {
    let lookup = |name: &str| variables.lookup(name);
    select_model(settings, None, &lookup)
        .and_then(|spec| protocol::config::api_key(&spec, &lookup).map(|_| spec))
        .map_err(|error| with_ollama(&error, &ollama_address(variables)))
}

fn with_ollama(error: &ConfigError, address: &str) -> ToolError {
    let refusal = error.to_tool_error();
    if !error.is_no_model() || !ollama_answers(address) {
        return refusal;
    }
    let hint = format!(
        "{}\nan Ollama answers on {address}: --model http://{address}/v1#NAME with a name of \
         `ollama list` uses it",
        refusal.hint
    );
    refusal.hint(hint)
}

/// Where an Ollama would listen on this machine. `OLLAMA_HOST` counts only where it names a
/// loopback address: nobody else's machine is asked.
fn ollama_address(variables: &Variables) -> String {
    variables
        .get("OLLAMA_HOST")
        .map(|value| value.trim_start_matches("http://").trim_end_matches('/'))
        .filter(|value| {
            value
                .parse::<SocketAddr>()
                .is_ok_and(|address| address.ip().is_loopback())
        })
        .unwrap_or(OLLAMA_ADDRESS)
        .to_owned()
}

/// Whether an Ollama answers: it greets whoever asks for its root.
fn ollama_answers(address: &str) -> bool {
    let greeting = || -> io::Result<String> {
        let (connect, wait) = (
            Duration::from_millis(OLLAMA_CONNECT_MS),
            Duration::from_millis(OLLAMA_ANSWER_MS),
        );
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, connect)?;
        stream.set_read_timeout(Some(wait))?;
        stream.set_write_timeout(Some(wait))?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        const GREETING_BYTES_MAX: u64 = 4 * 1024;
        let mut bytes = Vec::new();
        // A server that does not close the connection is cut off by the time-out, and what it
        // said until then counts.
        stream.take(GREETING_BYTES_MAX).read_to_end(&mut bytes).ok();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    greeting().is_ok_and(|text| text.contains("Ollama"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn environment(pairs: &[(&str, &str)]) -> Variables {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    struct Place {
        dir: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join("home/.config/muster")).unwrap();
            std::fs::create_dir_all(dir.path().join("work")).unwrap();
            Place { dir }
        }

        fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
            let path = self.dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        }

        fn load(&self, more: &[(&str, &str)]) -> Result<Settings, ToolError> {
            let home = self.dir.path().join("home");
            let mut pairs = vec![("HOME", home.to_str().unwrap())];
            pairs.extend(more);
            load(
                &self.dir.path().join("work"),
                &environment(&pairs),
                Vec::new(),
            )
        }
    }

    #[test]
    fn the_users_file_is_where_the_variables_say() {
        let usual = |path: &str| UserFile::Usual(PathBuf::from(path));
        for (pairs, expected) in [
            (vec![], UserFile::Nowhere),
            (vec![("HOME", "/h")], usual("/h/.config/muster/muster.toml")),
            (
                vec![("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")],
                usual("/x/muster/muster.toml"),
            ),
            (
                vec![("HOME", "/h"), ("XDG_CONFIG_HOME", "x")],
                usual("/h/.config/muster/muster.toml"),
            ),
            (
                vec![("HOME", "/h"), ("MUSTER_CONFIG", "m.toml")],
                UserFile::Named("m.toml".into()),
            ),
        ] {
            assert_eq!(user_file(&environment(&pairs)), expected, "{pairs:?}");
        }
        let both = config_files(Path::new("/w"), &environment(&[("HOME", "/h")]));
        let names = ["/h/.config/muster/muster.toml", "/w/muster.toml"];
        assert_eq!(both, names.map(PathBuf::from));
        let one = config_files(Path::new("/w"), &environment(&[]));
        assert_eq!(one, [PathBuf::from("/w/muster.toml")]);
    }

    #[test]
    fn files_environment_and_flags_are_laid_over_each_other() {
        let place = Place::new();
        assert_eq!(place.load(&[]).unwrap().limits.max_concurrent, 5);
        place.write(
            "home/.config/muster/muster.toml",
            "[limits]\nmax_concurrent = 7\n",
        );
        assert_eq!(place.load(&[]).unwrap().limits.max_concurrent, 7);
        place.write("work/muster.toml", "[limits]\nmax_concurrent = 3\n");
        assert_eq!(place.load(&[]).unwrap().limits.max_concurrent, 3);
        let other = place.write("other.toml", "[limits]\nmax_concurrent = 2\n");
        let named = [("MUSTER_CONFIG", other.to_str().unwrap())];
        assert_eq!(place.load(&named).unwrap().limits.max_concurrent, 2);
    }

    #[test]
    fn a_bad_file_is_named_with_its_line() {
        let place = Place::new();
        place.write(
            "home/.config/muster/muster.toml",
            "language = \"en\"\n[limits]\nmax_concurrent = 0\n",
        );
        let error = place.load(&[]).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidParameters);
        assert!(error.message.contains("muster.toml:3"), "{error}");
        assert!(error.message.contains("max_concurrent"), "{error}");
        place.write("home/.config/muster/muster.toml", b"\xff");
        assert!(place.load(&[]).unwrap_err().message.contains("not UTF-8"));
        let missing = place.load(&[("MUSTER_CONFIG", "/nowhere/m.toml")]);
        assert!(missing.unwrap_err().message.contains("/nowhere/m.toml"));
    }

    #[test]
    fn a_fifo_in_place_of_the_workspaces_file_does_not_block() {
        let place = Place::new();
        let path = place.dir.path().join("work/muster.toml");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = place.load(&[]).unwrap_err();
        assert!(error.message.contains("not a regular file"), "{error}");
    }

    #[test]
    fn values_of_variables_do_not_show() {
        let text = format!("{:?}", environment(&[("OPENAI_API_KEY", "sk-secret")]));
        assert_eq!(text, "{\"OPENAI_API_KEY\"}");
    }

    #[test]
    fn without_a_model_three_ways_are_named_and_a_running_ollama() {
        let settings = Place::new().load(&[]).unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 18];
            stream.read_exact(&mut request).unwrap();
            stream
                .write_all(b"HTTP/1.0 200 OK\r\n\r\nOllama is running")
                .unwrap();
        });
        let url = format!("http://{address}/");
        let error = choose_model(&settings, &environment(&[("OLLAMA_HOST", &url)])).unwrap_err();
        answering.join().unwrap();
        assert_eq!(error.code, ErrorCode::NoModel);
        for way in ["OPENAI_API_KEY", "--model", "muster.toml", &address] {
            assert!(error.hint.contains(way), "{way}: {}", error.hint);
        }
        // The same address, now that nobody listens there.
        let error = choose_model(&settings, &environment(&[("OLLAMA_HOST", &url)])).unwrap_err();
        assert!(!error.hint.contains("Ollama"), "{}", error.hint);
    }

    #[test]
    fn only_this_machine_is_asked_for_an_ollama() {
        for (value, expected) in [
            (None, OLLAMA_ADDRESS),
            (Some("127.0.0.1:5"), "127.0.0.1:5"),
            (Some("http://127.0.0.1:5/"), "127.0.0.1:5"),
            (Some("10.0.0.1:11434"), OLLAMA_ADDRESS),
            (Some("0.0.0.0"), OLLAMA_ADDRESS),
        ] {
            let pairs: Vec<_> = value
                .map(|value| ("OLLAMA_HOST", value))
                .into_iter()
                .collect();
            assert_eq!(ollama_address(&environment(&pairs)), expected);
        }
    }
}
