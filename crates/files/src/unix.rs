//! What the system is asked for: a listener that only the owner can connect to from its first moment on, descriptors passed with bytes, the
//! user, signals.

use std::io::{Error, ErrorKind, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const BACKLOG: i32 = 1024;

fn address(path: &Path) -> Result<libc::sockaddr_un> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        let most = address.sun_path.len() - 1;
        return Err(Error::new(ErrorKind::InvalidInput, format!("a socket's path has 1 to {most} bytes")));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    Ok(address)
}

fn checked(code: i32) -> Result<()> {
    if code < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Connects to a daemon.
pub fn connect(path: &Path) -> Result<UnixStream> {
    UnixStream::connect(path)
}

/// Listens at `path`, for the owner alone (mode 0600). A socket that a daemon left which died is replaced, and true is returned with the
/// listener; one that answers is in use.
pub fn listen(path: &Path) -> Result<(UnixListener, bool)> {
    let died = match UnixStream::connect(path) {
        Ok(_) => return Err(Error::new(ErrorKind::AddrInUse, "another daemon listens there")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => true,
        Err(_) => false,
    };
    if died {
        unlink(path)?;
    }
    let to = address(path)?;
    // SAFETY: the call has no conditions.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    checked(fd)?;
    // SAFETY: the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is a valid one of this length.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const to).cast(), len) })?;
    // Until it listens, nothing can connect to it.
    // SAFETY: the path of the address is terminated, as it is shorter than its place.
    checked(unsafe { libc::chmod(to.sun_path.as_ptr(), 0o600) })?;
    // SAFETY: the descriptor is a bound socket.
    checked(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
    Ok((UnixListener::from(fd), died))
}

/// Removes a socket's name.
pub fn unlink(path: &Path) -> Result<()> {
    let address = address(path)?;
    // SAFETY: the path of the address is terminated.
    checked(unsafe { libc::unlink(address.sun_path.as_ptr()) })
}

/// Opens a file to map it.
pub fn open(path: &Path, writes: bool) -> Result<OwnedFd> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(Error::other)?;
    let flags = if writes { libc::O_RDWR } else { libc::O_RDONLY };
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC) };
    checked(fd)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::SeqCst);
}

/// A flag that SIGINT and SIGTERM set.
pub fn stop_on_signals() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which a signal may do at any moment.
        unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
    }
    &STOP
}

/// The system's monotonic clock, which all processes share, in nanoseconds.
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid, and the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The number of this process's user.
pub fn user() -> u32 {
    // SAFETY: the call has no conditions and cannot fail.
    unsafe { libc::getuid() }
}

/// Room for one descriptor beside the bytes of a message.
#[repr(align(8))]
struct Control([u8; 64]);

fn message(bytes: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeros is a valid message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as _;
    message
}

/// Sends the bytes with a descriptor; how many were sent.
pub fn send_with_fd(stream: &impl AsRawFd, bytes: &[u8], fd: BorrowedFd<'_>) -> Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    let message = message(&mut part, &mut control);
    // SAFETY: the message has room for one header with a descriptor, and the first header is in it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd.as_raw_fd());
    }
    // SAFETY: the message points to bytes and control data that outlive the call; the bytes are only read.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| Error::last_os_error())
}

/// Sends a short frame if the socket has room for it now. The system takes such a frame whole or not at all: it is one buffer of its own.
pub fn send_now(stream: BorrowedFd<'_>, bytes: &[u8]) -> bool {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the bytes are valid for the call.
    let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent) == Ok(bytes.len())
}

/// Receives bytes, and a descriptor if one came with them.
pub fn receive_with_fd(stream: &UnixStream, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    let mut message = message(&mut part, &mut control);
    // SAFETY: the message points to buffers that outlive the call.
    let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| Error::last_os_error())?;
    // SAFETY: the kernel has filled the control data; a header in it that says so holds a descriptor that is ours now.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        let is_fd = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        is_fd.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
    };
    Ok((received, fd))
}
