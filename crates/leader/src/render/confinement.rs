//! What holds an agent, in words.

use serde_json::Value;

use crate::render::width::plain;

/// The parts of a confinement in the order in which people read them.
const PARTS: [(&str, &str); 5] = [
    ("kill", "kill"),
    ("procs", "processes"),
    ("memory", "memory"),
    ("network", "network"),
    ("filesystem", "files"),
];

/// `pidns: kill complete, processes tree, …`, with what was asked for where that differs; empty
/// when nothing is known.
pub fn confinement_text(confinement: &Value) -> String {
    let Some(rung) = confinement["rung"].as_str() else {
        return String::new();
    };
    let asked = |key: &str| match confinement["asked"][key].as_str() {
        Some(word) => format!(" (asked: {})", plain(word)),
        None => String::new(),
    };
    let mut text = format!("{}{}", plain(rung), asked("rung"));
    let parts: Vec<String> = PARTS
        .iter()
        .filter_map(|(key, name)| {
            let word = confinement[*key].as_str()?;
            Some(format!("{name} {}{}", plain(word), asked(key)))
        })
        .collect();
    if !parts.is_empty() {
        text.push_str(": ");
        text.push_str(&parts.join(", "));
    }
    text.push_str(&commands_text(confinement));
    text
}

/// What commands have otherwise than their worker, or are held by less than a keeper; empty where
/// nothing of that is so.
fn commands_text(confinement: &Value) -> String {
    let commands = &confinement["commands"];
    let mut parts = Vec::new();
    if let Some(by) = commands["held_by"].as_str().filter(|by| *by != "keeper") {
        parts.push(format!("held by {}", plain(by)));
    }
    let network = commands["network"].as_str();
    if let Some(word) = network.filter(|word| confinement["network"] != **word) {
        let asked = commands["asked_network"].as_str();
        let asked = asked.map_or(String::new(), |asked| format!(" (asked: {})", plain(asked)));
        parts.push(format!("network {}{asked}", plain(word)));
    }
    match parts.as_slice() {
        [] => String::new(),
        parts => format!("; commands: {}", parts.join(", ")),
    }
}

/// What does not hold, one text each.
pub fn gaps(confinement: &Value) -> Vec<String> {
    let gaps = confinement["gaps"].as_array();
    gaps.into_iter()
        .flatten()
        .filter_map(|gap| gap.as_str().map(plain))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_enforced_is_one_line_and_what_was_asked_stands_where_it_differs() {
        let whole = json!({
            "rung": "group", "kill": "group", "procs": "uid", "memory": "none",
            "network": "full", "filesystem": "none", "gaps": ["a\u{1b}[31mb", "c"],
            "asked": {"rung": "pidns", "network": "loopback"},
        });
        assert_eq!(
            confinement_text(&whole),
            "group (asked: pidns): kill group, processes uid, memory none, \
             network full (asked: loopback), files none"
        );
        assert_eq!(gaps(&whole), ["a\u{FFFD}[31mb", "c"]);
        assert_eq!(confinement_text(&json!({"rung": "pidns"})), "pidns");
        let with = |network: &str, commands: Value| {
            confinement_text(&json!({"rung": "pidns", "network": network, "commands": commands}))
        };
        assert_eq!(
            with("full", json!({"held_by": "keeper", "network": "full"})),
            "pidns: network full"
        );
        assert_eq!(
            with("full", json!({"held_by": "keeper", "network": "loopback"})),
            "pidns: network full; commands: network loopback"
        );
        assert_eq!(
            with(
                "full",
                json!({"held_by": "jail", "network": "nothing", "asked_network": "loopback"})
            ),
            "pidns: network full; commands: held by jail, network nothing (asked: loopback)"
        );
        assert_eq!(confinement_text(&Value::Null), "");
        assert_eq!(gaps(&Value::Null), Vec::<String>::new());
    }
}
