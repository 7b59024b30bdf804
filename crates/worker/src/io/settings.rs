//! Reads the layers of the configuration from where they lie, and finds the model.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::channel::{ModelAccess, WebKey};
use protocol::config::{
    ConfigError, ConfigFile, FileTrust, Flag, Layers, Settings, TrustRecord, api_key, record_name,
    resolve, select_model, trust_dir, web_key,
};
use protocol::job::{JobSpec, ModelSpec};
use protocol::limits::{CONFIG_BYTES_MAX, TRUST_RECORD_BYTES_MAX};
use protocol::web::WebSpec;

use crate::exit::StartError;
use crate::io::job::read_text_or_none;

/// The name of a configuration file, the user's and the workspace's.
const FILE_NAME: &str = "muster.toml";
/// Names another file in place of the user's own.
const FILE_VARIABLE: &str = "MUSTER_CONFIG";
/// Where a local model server of that name listens.
const OLLAMA: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 11_434);
/// For each step of asking it.
const OLLAMA_WAIT: Duration = Duration::from_millis(200);
/// Of its greeting.
const GREETING_BYTES_MAX: u64 = 4 * 1024;

/// Lays the user's file, the workspace's file, the environment and the flags over each other.
///
/// # Errors
/// When a file can't be read or holds what is not allowed.
pub fn load(workspace: &Path, flags: Vec<Flag>) -> Result<Settings, StartError> {
    let own = workspace.join(FILE_NAME);
    let file = config_file(&own)?;
    let layers = Layers {
        user: user_file()?,
        trust: file
            .as_ref()
            .map_or(FileTrust::Never, |file| trust_in(workspace, &file.text)),
        workspace: file,
        variables: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        flags,
    };
    resolve(&layers).map_err(|error| start_error(&error))
}

/// How far the user trusts this content of the workspace's file, as `leader trust` wrote it down.
/// A record that can't be read is none, and one that lies in the workspace, where agents write,
/// does not count.
fn trust_in(workspace: &Path, text: &str) -> FileTrust {
    let judged = || {
        let workspace = workspace.canonicalize().ok()?;
        let own = workspace.join(FILE_NAME);
        let dir = trust_dir(filled)?.canonicalize().ok()?;
        if dir.starts_with(&workspace) {
            return None;
        }
        let record = dir.join(record_name(&own));
        let record = read_text_or_none(&record, "acceptance", TRUST_RECORD_BYTES_MAX).ok()??;
        let record: TrustRecord = serde_json::from_str(&record).ok()?;
        Some(record.judge(&own, text.as_bytes()))
    };
    judged().unwrap_or_default()
}

fn user_file() -> Result<Option<ConfigFile>, StartError> {
    if let Some(named) = filled(FILE_VARIABLE) {
        let path = PathBuf::from(named);
        return match config_file(&path)? {
            Some(file) => Ok(Some(file)),
            None => Err(StartError::new(format!(
                "{FILE_VARIABLE} names `{}`, which does not exist",
                path.display()
            ))
            .hint(format!("unset {FILE_VARIABLE}, or make that file"))),
        };
    }
    // A relative XDG_CONFIG_HOME is to be ignored, says its specification.
    let home = filled("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(filled("HOME")?).join(".config")));
    match home {
        Some(home) => config_file(&home.join("muster").join(FILE_NAME)),
        None => Ok(None),
    }
}

fn config_file(path: &Path) -> Result<Option<ConfigFile>, StartError> {
    let text = read_text_or_none(path, "configuration file", CONFIG_BYTES_MAX)?;
    Ok(text.map(|text| ConfigFile {
        name: path.display().to_string(),
        text,
    }))
}

fn filled(variable: &str) -> Option<String> {
    std::env::var(variable)
        .ok()
        .filter(|value| !value.is_empty())
}

/// The model that was chosen, or the one that is found, with its key.
///
/// # Errors
/// When there is none, or its key is missing. When none is configured at all, a model server on
/// this machine is looked for and named.
pub fn find_model(settings: &Settings, wanted: Option<&str>) -> Result<ModelAccess, StartError> {
    let lookup = |name: &str| std::env::var(name).ok();
    let spec = select_model(settings, wanted, &lookup).map_err(|error| no_model(&error))?;
    with_key(spec)
}

/// The model of a job that is run without a leader, with its key. What a job does not tell of its
/// model, the values of its headers, is taken from the configuration.
///
/// # Errors
/// When the key is missing, or a header has no value there.
pub fn model_of_job(job: &JobSpec) -> Result<ModelAccess, StartError> {
    let mut spec = job.model.clone();
    if spec.lacks_headers() {
        let settings = load(&job.workspace, Vec::new())?;
        spec.take_headers_of(settings.models.get(&spec.key))
            .map_err(|why| {
                StartError::new(format!("the headers of the job's model are missing: {why}")).hint(
                    "a job holds the names of headers only; configure the model as it was then",
                )
            })?;
    }
    with_key(spec)
}

fn with_key(spec: ModelSpec) -> Result<ModelAccess, StartError> {
    let lookup = |name: &str| std::env::var(name).ok();
    let api_key = api_key(&spec, &lookup).map_err(|error| start_error(&error))?;
    Ok(ModelAccess { spec, api_key })
}

/// The key of a search engine that is known already.
///
/// # Errors
/// When it is missing.
pub fn web_key_of(web: Option<&WebSpec>) -> Result<Option<WebKey>, StartError> {
    let lookup = |name: &str| std::env::var(name).ok();
    web_key(web, &lookup).map_err(|error| start_error(&error))
}

fn no_model(error: &ConfigError) -> StartError {
    let refusal = start_error(error);
    if !error.is_no_model() || !greets_as_ollama(OLLAMA) {
        return refusal;
    }
    let hint = format!(
        "{}\nan Ollama answers on {OLLAMA}: --model http://{OLLAMA}/v1#NAME, with a NAME of \
         `ollama list`, uses it",
        refusal.hint
    );
    refusal.hint(hint)
}

fn greets_as_ollama(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, OLLAMA_WAIT)?;
        stream.set_read_timeout(Some(OLLAMA_WAIT))?;
        stream.set_write_timeout(Some(OLLAMA_WAIT))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut greeting = Vec::new();
        // What came before a time-out counts too: some servers keep the connection open.
        drop(stream.take(GREETING_BYTES_MAX).read_to_end(&mut greeting));
        Ok(greeting)
    };
    ask().is_ok_and(|greeting| String::from_utf8_lossy(&greeting).contains("Ollama"))
}

fn start_error(error: &ConfigError) -> StartError {
    StartError::new(error.to_string()).hint(error.hint.clone())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_is_an_ollama_only_if_it_says_so() {
        for (greeting, expected) in [("Ollama is running", true), ("Hello", false)] {
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let serving = std::thread::spawn(move || {
                let (mut stream, _) = server.accept().unwrap();
                let mut request = [0; 18];
                stream.read_exact(&mut request).unwrap();
                write!(stream, "HTTP/1.0 200 OK\r\n\r\n{greeting}").unwrap();
            });
            assert_eq!(greets_as_ollama(address), expected);
            serving.join().unwrap();
            assert!(!greets_as_ollama(address), "nobody listens any more");
        }
    }
}
