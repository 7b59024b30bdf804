//! Carries out what the core decides: one task that owns all agents of a conversation, and the
//! handle through which everybody else talks to it.

pub mod config;
pub mod handle;
pub mod plan;
pub mod request;
pub mod start;
pub mod subscription;

mod agents;
mod asked;
mod calls;
mod caps;
mod channel;
mod creating;
mod effects;
mod event_log;
mod outcomes;
mod places;
mod state;
mod texts;
mod tickets;
mod watchdog;
mod work;

pub use config::{DriverConfig, Environment, StartError};
pub use handle::Handle;
pub use request::{
    CreateAnswer, CreateOrderRequest, ItemOrder, Origin, ResumeRequest, StopMode, WaitRequest,
};
pub use start::{Driver, RUNS_DIR};
pub use subscription::{Subscription, SubscriptionItem};
