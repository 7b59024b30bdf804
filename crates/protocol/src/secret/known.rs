//! Which values are secrets that something can be done about.

use std::collections::BTreeSet;

use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRET_PLAIN_BYTES_MIN, SECRETS_MAX};
use crate::secret::is_secret_name;

/// The values to mask: of each variable that is called like a secret, and of those that `named`
/// says hold keys whatever they are called. `is_path` tells whether a value is the path of
/// something that exists: a place is no secret, and hiding it would make every answer unreadable.
///
/// Values of fewer than [`SECRET_BYTES_MIN`] bytes, and single plain words of fewer than
/// [`SECRET_PLAIN_BYTES_MIN`], are left out, for they stand in ordinary texts. Of a value of
/// several lines, such as a private key, each line is one, so that it is found in a listing with
/// line numbers too. At most [`SECRETS_MAX`] come back, each once, in rising order.
pub fn known_values<'a>(
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    named: &[&str],
    is_path: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let found: BTreeSet<String> = variables
        .into_iter()
        .filter(|(name, _)| is_secret_name(name) || named.contains(name))
        .filter(|(_, value)| !(value.starts_with('/') && is_path(value)))
        .flat_map(|(_, value)| value.lines().map(str::trim))
        .filter(|line| can_be_masked(line))
        .map(str::to_owned)
        .collect();
    found.into_iter().take(SECRETS_MAX).collect()
}

/// Whether masking a value hides it and little else.
pub(super) fn can_be_masked(value: &str) -> bool {
    let bytes = value.len();
    let is_word = value.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_frame = value.starts_with("-----");
    (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes)
        && !(is_word && bytes < SECRET_PLAIN_BYTES_MIN)
        && !is_frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_like_a_secret_or_said_to_be_one_is_taken_once() {
        let variables = [
            ("GH_TOKEN", "ghp_0123456789"),
            ("OTHER_TOKEN", "ghp_0123456789"),
            ("CORP", "tok123456789"),
            ("PATH", "/usr/bin:/bin"),
            ("SHORT_KEY", "tok1234"),
            ("PLAIN_TOKEN", "disabled"),
            ("PASSPHRASE", "correcthorsebattery"),
            ("PASSWORD_STORE_DIR", "/home/me/.password-store"),
            ("ODD_SECRET", "/starts/like/a/path"),
        ];
        let exists = |path: &str| path == "/home/me/.password-store";
        assert_eq!(
            known_values(variables, &["CORP"], &exists),
            [
                "/starts/like/a/path",
                "correcthorsebattery",
                "ghp_0123456789",
                "tok123456789"
            ]
        );
    }

    #[test]
    fn each_line_of_a_private_key_is_a_secret_and_its_frame_is_not() {
        let key = "-----BEGIN X-----\nMIIEpAIBAAKC\n  QzRkNzU2Nzg5\n=\n-----END X-----\n";
        assert_eq!(
            known_values([("DEPLOY_KEY", key)], &[], &|_| false),
            ["MIIEpAIBAAKC", "QzRkNzU2Nzg5"]
        );
    }

    #[test]
    fn there_are_only_so_many_and_so_long() {
        let many: Vec<(String, String)> = (0..=SECRETS_MAX)
            .map(|n| (format!("A{n}_KEY"), format!("value-{n:08}")))
            .collect();
        let pairs = many.iter().map(|(name, value)| (&**name, &**value));
        assert_eq!(known_values(pairs, &[], &|_| false).len(), SECRETS_MAX);
        let at = |bytes: usize| {
            let value = "Xy".repeat(bytes / 2);
            known_values([("A_KEY", &*value)], &[], &|_| false).len()
        };
        assert_eq!((at(SECRET_BYTES_MAX), at(SECRET_BYTES_MAX + 2)), (1, 0));
        assert_eq!((at(SECRET_BYTES_MIN), at(SECRET_BYTES_MIN - 2)), (1, 0));
    }
}
