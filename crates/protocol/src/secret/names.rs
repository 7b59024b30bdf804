//! Which names of variables say that the value is a secret.

/// Parts of a name, between underscores, that mean that its value is to be kept from commands.
const SECRET_WORDS: &[&str] = &[
    "KEY",
    "KEYS",
    "APIKEY",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "PAT",
];

/// Whether a variable of this name most likely holds a secret: `OPENAI_API_KEY`, `GH_TOKEN`,
/// `aws_secret_access_key`, but not `KEYBOARD` or `TOKENIZERS_PARALLELISM`.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    name.split('_').any(|word| SECRET_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_name_tells_and_a_part_of_a_word_does_not() {
        for name in [
            "OPENAI_API_KEY",
            "GH_TOKEN",
            "aws_secret_access_key",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "APIKEY",
            "GITLAB_PAT",
            "MODEL_CREDENTIALS",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "TOKENIZERS_PARALLELISM", ""] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
