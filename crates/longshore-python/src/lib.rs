//! Children of Python: the frames of Airflow's supervisor protocol.

pub mod frame;
pub mod value;

pub use frame::{Decoder, Frame, FrameError};
pub use rmpv::Value;
