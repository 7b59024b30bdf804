//! Carries out what the core decides: one task that owns all agents of a conversation, and the
//! handle through which everybody else talks to it.

pub mod handle;
pub mod request;
pub mod subscription;

pub use handle::Handle;
pub use request::{CreateAnswer, CreateOrderRequest, Origin, StopMode, WaitRequest};
pub use subscription::{Subscription, SubscriptionItem};
