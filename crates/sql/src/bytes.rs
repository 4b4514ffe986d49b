//! Runs of bytes as they cross the border: a pointer and a length, borrowed.

/// Borrowed bytes. `data` may be null when `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceBytes {
    pub data: *const u8,
    pub len: usize,
}

pub use TerraceBytes as Bytes;

impl TerraceBytes {
    pub const EMPTY: TerraceBytes = TerraceBytes { data: std::ptr::null(), len: 0 };

    pub fn of(bytes: &[u8]) -> TerraceBytes {
        TerraceBytes { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// `data` points to `len` readable bytes that live and do not change during `'a`.
    pub unsafe fn get<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise; the length is not 0, so neither is the pointer null.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// # Safety
    /// As [`TerraceBytes::get`].
    pub unsafe fn text<'a>(self) -> Result<&'a str, crate::Fault> {
        // SAFETY: the caller's promise.
        std::str::from_utf8(unsafe { self.get() })
            .map_err(|_| crate::Fault::invalid("a name is not valid UTF-8".into()))
    }
}
