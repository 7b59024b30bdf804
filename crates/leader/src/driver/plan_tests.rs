use super::*;
use protocol::config::{ConfigFile, Layers, resolve};
use protocol::status::ThinkingMode;

const MODELS: &str = r#"default_model = "a"
[limits]
timeout_seconds_min = 60
timeout_seconds_max = 900
grace_seconds = 3
[models.a]
provider = "openai"
base_url = "http://127.0.0.1:9/v1"
model = "small"
api_key_env = "A_KEY"
headers = { X-Tenant = "tenant-value-5678" }
[models.b]
provider = "script"
model = "b.jsonl"
"#;

fn ground() -> Ground {
    let layers = Layers {
        user: Some(ConfigFile {
            name: "muster.toml".into(),
            text: MODELS.into(),
        }),
        ..Layers::default()
    };
    Ground {
        conversation: ConversationId::new("conv_00000001").unwrap(),
        workspace: "/w".into(),
        settings: resolve(&layers).unwrap(),
        environment: Environment::of([("A_KEY".to_owned(), "test-key-1234".to_owned())].into()),
        texts: Texts {
            zh: Prompts::builtin(Language::Zh),
            en: Prompts::builtin(Language::En),
        },
        system: "Linux 6.12 x86_64".into(),
    }
}

fn order(origin: Origin, change: impl FnOnce(&mut CreateSubAgentParams)) -> CreateOrderRequest {
    let mut params = CreateSubAgentParams {
        summary: Some("write the overview".into()),
        task: "Write an overview of src.".into(),
        ..CreateSubAgentParams::default()
    };
    change(&mut params);
    CreateOrderRequest {
        params,
        origin,
        item: None,
    }
}

fn planned(order: &CreateOrderRequest) -> Result<Plan, ToolError> {
    let identity = Identity {
        agent_id: AgentId::new(3).unwrap(),
        task_id: TaskId::new("sub_00000001").unwrap(),
        sub_conversation_id: ConversationId::new("conv_00000002").unwrap(),
        created_at: "2026-03-10T12:00:00Z".into(),
        spoken_time: "2026-03-10 12:00:00 UTC".into(),
    };
    plan(order, &ground(), identity, "docs".into(), Vec::new())
}

#[test]
fn a_person_may_set_any_deadline_up_to_the_maximum_and_a_model_only_its_range() {
    let with = |origin, seconds| {
        planned(&order(origin, |params| {
            params.timeout_seconds = Some(seconds)
        }))
        .map(|plan| plan.job.limits.timeout_seconds)
        .map_err(|error| error.code)
    };
    let refused = Err(ErrorCode::InvalidParameters);
    assert_eq!(with(Origin::Tool, 60), Ok(60));
    assert_eq!(with(Origin::Tool, 59), refused);
    assert_eq!(with(Origin::Tool, 900), Ok(900));
    assert_eq!(with(Origin::Tool, 901), refused);
    assert_eq!(with(Origin::Person, 1), Ok(1));
    assert_eq!(with(Origin::Person, 0), refused);
    assert_eq!(with(Origin::Person, 901), refused);
    assert_eq!(with(Origin::Person, -1), refused);
}

#[test]
fn a_model_may_choose_among_the_configured_models_alone() {
    let with = |origin, key: &str| {
        planned(&order(origin, |params| params.model_key = Some(key.into())))
            .map(|plan| plan.access.spec.model)
            .map_err(|error| error.code)
    };
    let url = "http://127.0.0.1:1/v1#other";
    assert_eq!(with(Origin::Tool, "b"), Ok("b.jsonl".into()));
    assert_eq!(with(Origin::Tool, "c"), Err(ErrorCode::UnknownModel));
    assert_eq!(with(Origin::Tool, url), Err(ErrorCode::UnknownModel));
    assert_eq!(with(Origin::Person, url), Ok("other".into()));
}

#[test]
fn key_and_header_values_are_in_the_access_and_nowhere_else() {
    let plan = planned(&order(Origin::Tool, |_| {})).unwrap();
    assert_eq!(plan.access.api_key.as_deref(), Some("test-key-1234"));
    assert_eq!(plan.access.spec.headers["X-Tenant"], "tenant-value-5678");
    assert_eq!(plan.job.model.headers["X-Tenant"], "");
    let (debug, job) = (
        format!("{plan:?}"),
        serde_json::to_string(&plan.job).unwrap(),
    );
    for secret in ["test-key-1234", "tenant-value-5678"] {
        assert!(!debug.contains(secret), "{debug}");
        assert!(!job.contains(secret), "{job}");
    }
}

#[test]
fn the_rest_of_a_job_comes_from_definition_and_settings() {
    let plan = planned(&order(Origin::Tool, |params| {
        params.thinking_mode = Some(ThinkingMode::Fast);
        params.max_turns = Some(7);
    }))
    .unwrap();
    let job = &plan.job;
    assert_eq!(
        (
            job.limits.timeout_seconds,
            job.limits.max_turns,
            job.limits.grace_seconds
        ),
        (600, 7, 3)
    );
    assert_eq!(job.model.thinking_mode, Some(ThinkingMode::Fast));
    assert_eq!(
        (job.language, job.display_name.as_str()),
        (Language::En, "Sub-agent 3")
    );
    assert_eq!(job.tools, Definition::implicit().tools);
    assert_eq!(plan.warnings, Vec::<String>::new());
    for piece in ["/w", "docs", "Linux 6.12 x86_64", "2026-03-10 12:00:00 UTC"] {
        assert!(plan.system_prompt.contains(piece), "{piece}");
    }
}

#[test]
fn an_agent_is_spoken_to_in_the_language_of_its_task() {
    let plan = planned(&order(Origin::Tool, |params| {
        params.task = "写一份概述".into()
    }))
    .unwrap();
    assert_eq!(
        (plan.job.language, plan.job.display_name.as_str()),
        (Language::Zh, "子智能体3")
    );
}

#[test]
fn odd_summaries_are_warned_of_and_roles_are_not_known() {
    let short = planned(&order(Origin::Tool, |params| {
        params.summary = Some("x".into())
    }));
    assert_eq!(short.unwrap().warnings.len(), 1);
    let role = planned(&order(Origin::Tool, |params| {
        params.role_id = Some("reviewer".into())
    }));
    let error = role.unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownRole);
    assert!(error.message.contains("reviewer"));
}
