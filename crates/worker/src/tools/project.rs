//! What a workspace brings along for its agents: the instructions of its `AGENTS.md`, and skills.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use protocol::result::floor_border;
use protocol::text::{Instructions, Prompts, SkillLine};

use super::failure::Doing;
use super::limits;
use super::paths::resolve;
use super::skill::{Found, Skill, find};

/// The file with a workspace's instructions.
const INSTRUCTIONS_FILE: &str = "AGENTS.md";

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// The text of the instructions, cut, and whether it was.
    instructions: Option<(String, bool)>,
    /// The skills.
    pub skills: Arc<[Skill]>,
    /// What is odd, in sentences.
    pub warnings: Vec<String>,
}

impl Project {
    /// Looks into a workspace, which is absolute with its links resolved, and into the user's own
    /// folder of skills.
    pub fn find(workspace: &Path, user_skills: Option<&Path>) -> Self {
        let Found {
            skills,
            mut warnings,
        } = find(workspace, user_skills);
        let instructions = match instructions(workspace) {
            Ok(instructions) => instructions,
            Err(why) => {
                warnings.push(format!("`{INSTRUCTIONS_FILE}` is left out: {why}"));
                None
            }
        };
        Project {
            instructions,
            skills: skills.into(),
            warnings,
        }
    }

    /// What of it stands behind the system prompt; empty for most workspaces.
    pub fn section(&self, prompts: &Prompts) -> String {
        let instructions = self.instructions.as_ref().map(|(text, cut)| Instructions {
            name: INSTRUCTIONS_FILE,
            text,
            cut: *cut,
        });
        let skills: Vec<SkillLine<'_>> = self
            .skills
            .iter()
            .map(|skill| SkillLine {
                name: &skill.name,
                description: &skill.description,
            })
            .collect();
        prompts.project_section(instructions, &skills)
    }
}

fn instructions(workspace: &Path) -> Result<Option<(String, bool)>, String> {
    let place =
        resolve(workspace, INSTRUCTIONS_FILE, Doing::Read).map_err(|error| error.message)?;
    if place.kind.is_none() {
        return Ok(None);
    }
    let (file, _) = place.open_file().map_err(|error| error.message)?;
    let most = limits::INSTRUCTIONS_BYTES_MAX;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    let cut = bytes.len() > most;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // The cut may have gone through a character.
        Err(error) if cut && error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Err(_) => return Err("it is no UTF-8 text".to_owned()),
    };
    let text = text[..floor_border(&text, most)]
        .trim_start_matches('\u{feff}')
        .to_owned();
    Ok((!text.trim().is_empty()).then_some((text, cut)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use protocol::status::Language;

    fn section(ground: &Ground) -> (String, Vec<String>) {
        let project = Project::find(&ground.context.workspace, None);
        let prompts = Prompts::builtin(Language::En);
        (project.section(&prompts), project.warnings)
    }

    #[test]
    fn a_workspace_without_either_adds_nothing() {
        let ground = Ground::new();
        assert_eq!(section(&ground), (String::new(), Vec::new()));
        ground.file("AGENTS.md", b" \n");
        assert_eq!(section(&ground), (String::new(), Vec::new()));
    }

    #[test]
    fn instructions_and_skills_are_told() {
        let ground = Ground::new();
        ground.file("AGENTS.md", "# Rules\n用 make test\n".as_bytes());
        ground.file(
            ".muster/skills/pdf/SKILL.md",
            b"---\ndescription: for PDF files\n---\n",
        );
        let (told, warnings) = section(&ground);
        assert!(
            told.contains("# Rules\n用 make test\n</workspace-file>"),
            "{told}"
        );
        assert!(told.ends_with("\n- pdf: for PDF files"), "{told}");
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn instructions_are_cut_at_the_limit_and_never_inside_a_character() {
        let ground = Ground::new();
        let most = limits::INSTRUCTIONS_BYTES_MAX;
        ground.file("AGENTS.md", "x".repeat(most).as_bytes());
        assert!(!section(&ground).0.contains("[cut here"));
        for ahead in 0..4 {
            let text = "x".repeat(ahead) + &"文".repeat(most / 3 + 2);
            ground.file("AGENTS.md", text.as_bytes());
            let (told, warnings) = section(&ground);
            assert!(told.contains("[cut here"), "{ahead}");
            assert!(!told.contains('\u{fffd}'), "{ahead}");
            assert!(told.len() < most + 1_000, "{ahead}");
            assert_eq!(warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn what_is_no_text_or_leads_out_is_left_out_with_a_warning() {
        let ground = Ground::new();
        ground.file("AGENTS.md", b"\xff\xfeA\x00");
        let (told, warnings) = section(&ground);
        assert!(told.is_empty(), "{told}");
        assert!(warnings[0].contains("no UTF-8"), "{warnings:?}");
        std::fs::remove_file(ground.path("AGENTS.md")).unwrap();
        std::fs::write(ground.outside.join("f"), "x").unwrap();
        std::os::unix::fs::symlink(ground.outside.join("f"), ground.path("AGENTS.md")).unwrap();
        let (told, warnings) = section(&ground);
        assert!(told.is_empty(), "{told}");
        assert!(warnings[0].contains("AGENTS.md"), "{warnings:?}");
    }
}
