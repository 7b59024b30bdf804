//! `read_skill`: the instructions of a skill, or another file of its folder.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError, closest};
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{READ_SKILL, ReadSkillParams};
use serde_json::Value;

use super::failure::{Doing, io_failure};
use super::paths::resolve;
use super::skill::{SKILL_FILE, Skill};
use super::{
    Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult, blocking, limits, names, subject,
};

/// The tool.
#[derive(Debug)]
pub(crate) struct ReadSkill;

impl Tool for ReadSkill {
    fn name(&self) -> &'static str {
        READ_SKILL
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Reading, &subject::of(arguments, "name"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(read(context, arguments, within))
    }
}

async fn read(context: &ToolContext, arguments: &str, within: Duration) -> ToolResult {
    let params: ReadSkillParams = parse_text(arguments)?;
    let skill = context
        .skills
        .iter()
        .find(|skill| skill.name == params.name)
        .ok_or_else(|| unknown(&params.name, &context.skills))?
        .clone();
    let wanted = params.file.filter(|file| !file.is_empty());
    let within = within.min(Duration::from_secs(limits::READ_SECONDS_MAX));
    let workspace = context.workspace.clone();
    let text = blocking::read(within, "reading the skill", move || {
        let text = file_of(&skill, wanted.as_deref().unwrap_or(SKILL_FILE))?;
        Ok(match wanted {
            Some(_) => text,
            None => format!("{}\n{text}", headline(&skill, &workspace)),
        })
    })
    .await?;
    Ok(ToolOutput {
        value: Value::String(text),
        tally: Tally {
            files_read: 1,
            ..Tally::default()
        },
    })
}

fn unknown(name: &str, skills: &[Skill]) -> ToolError {
    let known: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
    let error = ToolError::new(ErrorCode::NotFound, format!("there is no skill `{name}`"));
    match (known.is_empty(), closest(name, known.iter().copied())) {
        (true, _) => error.hint("this agent has no skills; go on without"),
        (false, Some(near)) => error.hint(format!("did you mean `{near}`?")),
        (false, None) => error.hint(format!("known: {}", known.join(", "))),
    }
}

fn file_of(skill: &Skill, name: &str) -> Result<String, ToolError> {
    let path = skill.folder.join(names::read(name));
    let place = resolve(&skill.root, &names::show(&path), Doing::Read)?;
    // The root of a workspace's skill is the workspace; its own folder is all that is meant here.
    if !place.relative.starts_with(&skill.folder) {
        return Err(ToolError::new(
            ErrorCode::InvalidParameters,
            format!("`{name}` leads out of the skill's folder"),
        )
        .hint("read other files of the workspace with read_file"));
    }
    let (file, stat) = place.open_file()?;
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    if size > limits::SKILL_FILE_BYTES_MAX {
        return Err(ToolError::new(
            ErrorCode::TooLarge,
            format!(
                "`{name}` has {size} bytes; the most is {}",
                limits::SKILL_FILE_BYTES_MAX
            ),
        )
        .hint("take parts of it with run_command"));
    }
    let mut bytes = Vec::new();
    file.take(limits::SKILL_FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(Doing::Read, name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        ToolError::new(ErrorCode::BinaryFile, format!("`{name}` is no UTF-8 text"))
            .hint("use it with run_command, if the skill says so")
    })
}

/// Where the skill lies and what else is in its folder, on one line.
fn headline(skill: &Skill, workspace: &Path) -> String {
    let folder = skill.root.join(&skill.folder);
    let shown = |name: OsString| names::show(Path::new(&name));
    let mut others: Vec<String> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| shown(entry.file_name()))
        .filter(|name| name != SKILL_FILE)
        .take(limits::SKILL_FILES_NAMED_MAX)
        .collect();
    others.sort();
    let place = names::show(folder.strip_prefix(workspace).unwrap_or(&folder));
    match others.is_empty() {
        true => format!("[skill {}, folder {place}]", skill.name),
        false => format!(
            "[skill {}, folder {place}, with {}]",
            skill.name,
            others.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::skill::find;
    use crate::tools::testing::Ground;
    use serde_json::json;
    use std::sync::Arc;

    const PLENTY: Duration = Duration::from_secs(60);
    const TEXT: &str = "---\ndescription: d\n---\nDo it like this.\n";

    fn ground() -> Ground {
        let mut ground = Ground::new();
        ground.file(".muster/skills/pdf/SKILL.md", TEXT.as_bytes());
        ground.file(".muster/skills/pdf/forms.md", b"forms\n");
        ground.file(".muster/skills/pdf/logo.bin", b"\xff\xfe\x00");
        ground.file("secret.txt", b"s");
        let found = find(&ground.context.workspace, None);
        ground.context.skills = Arc::from(found.skills);
        ground
    }

    async fn call(ground: &Ground, name: &str, file: Option<&str>) -> ToolResult {
        let arguments = json!({"name": name, "file": file}).to_string();
        ReadSkill.call(&ground.context, &arguments, PLENTY).await
    }

    #[tokio::test]
    async fn a_skill_is_read_with_its_place_and_its_other_files_by_name() {
        let ground = ground();
        let output = call(&ground, "pdf", None).await.unwrap();
        assert_eq!(
            output.value,
            Value::String(format!(
                "[skill pdf, folder .muster/skills/pdf, with forms.md, logo.bin]\n{TEXT}"
            ))
        );
        assert_eq!(output.tally.files_read, 1);
        let output = call(&ground, "pdf", Some("forms.md")).await.unwrap();
        assert_eq!(output.value, Value::String("forms\n".to_owned()));
    }

    #[tokio::test]
    async fn nothing_but_its_text_files_can_be_read() {
        let ground = ground();
        std::os::unix::fs::symlink(&ground.outside, ground.path(".muster/skills/pdf/out")).unwrap();
        ground.file(
            ".muster/skills/pdf/long.md",
            &vec![b'x'; limits::SKILL_FILE_BYTES_MAX as usize + 1],
        );
        for (name, file, code) in [
            ("pdff", None, ErrorCode::NotFound),
            ("pdf", Some("gone.md"), ErrorCode::NotFound),
            (
                "pdf",
                Some("../../../secret.txt"),
                ErrorCode::InvalidParameters,
            ),
            ("pdf", Some("out/x"), ErrorCode::OutsideWorkspace),
            ("pdf", Some("/etc/passwd"), ErrorCode::OutsideWorkspace),
            ("pdf", Some("logo.bin"), ErrorCode::BinaryFile),
            ("pdf", Some("long.md"), ErrorCode::TooLarge),
            ("pdf", Some("."), ErrorCode::NotAFile),
        ] {
            let error = call(&ground, name, file).await.unwrap_err();
            assert_eq!(error.code, code, "{name} {file:?}: {error}");
        }
        let error = call(&ground, "pdff", None).await.unwrap_err();
        assert_eq!(error.hint, "did you mean `pdf`?");
    }
}
