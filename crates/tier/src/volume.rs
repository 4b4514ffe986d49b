//! The durable tier on the volume: the object buffer's slots, the map that says where each page lives, and the flush.

pub mod bypass;
pub mod flush;
pub mod map;
pub mod object_buffer;
pub mod temporary;
