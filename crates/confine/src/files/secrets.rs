//! Which places of a home hold secrets.

/// Relative to the home directory: what shows as empty to every agent, where it is there.
///
/// Directories and files of programs that keep keys, tokens or passwords in plain text, or sockets
/// through which they are used. `~/.npmrc` and `pip.conf` are not among them: they name the
/// registry, without which nothing installs; whoever keeps a token in one adds it by
/// `confinement.secret_paths`.
pub const SECRET_PATHS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/containers/auth.json",
    ".config/git/credentials",
    ".local/share/keyrings",
    ".password-store",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".thunderbird",
    ".terraform.d/credentials.tfrc.json",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
];
