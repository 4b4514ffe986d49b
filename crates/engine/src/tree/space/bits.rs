//! Which pages of a space are free: a bit for each page number, set if the page is free.
//!
//! The header has the bits of the first [`INLINE`] numbers. From there on each [`GROUP`] numbers begin with a *home*, a page of
//! kind `Bits` that has the group's; it is made when the space grows to it, so it is there if the space has had its number.
//! Numbers that were never used have no bit set, nor have the header and the homes.
//!
//! In a home, as in the header, the bits begin at byte [`BITS_AT`], the first number's in the lowest bit of the first byte.

use std::ops::Range;
use terrace_tier::page::{BLOCK_PAGES, PAGE_SIZE, PageRef};
use terrace_tier::redo::PageMut;

pub const BITS_AT: usize = 128;
/// Page numbers that the header has bits for: 512 MiB.
pub const INLINE: u32 = 1 << 15;
/// Those that a home has bits for: 2 GiB less 16 MiB, whole blocks.
pub const GROUP: u32 = ((PAGE_SIZE - BITS_AT) * 8) as u32;

const _: () = assert!(GROUP.is_multiple_of(BLOCK_PAGES) && BITS_AT + INLINE as usize / 8 <= PAGE_SIZE);

/// The page that has the bit of this one: the header, which is 0, or a home.
pub fn home_of(number: u32) -> u32 {
    if number < INLINE { 0 } else { INLINE + (number - INLINE) / GROUP * GROUP }
}

/// Whether the page is the home of a group.
pub fn is_home(number: u32) -> bool {
    number != 0 && home_of(number) == number
}

/// The homes among the first `pages` numbers, the header aside.
pub fn homes(pages: u32) -> impl Iterator<Item = u32> {
    (INLINE..pages).step_by(GROUP as usize)
}

/// The numbers whose bits the header or a home has.
pub fn span(home: u32) -> Range<u32> {
    home..home.saturating_add(if home == 0 { INLINE } else { GROUP })
}

fn place(number: u32) -> (usize, u8) {
    let index = number - home_of(number);
    (BITS_AT + index as usize / 8, 1 << (index % 8))
}

/// `page` is the number's home.
pub fn is_free(page: PageRef<'_>, number: u32) -> bool {
    let (at, bit) = place(number);
    page.u8(at) & bit != 0
}

/// The free pages of a block, a bit each. `page` is the home of its first number, and so of all.
pub fn of_block(page: PageRef<'_>, block: u32) -> u128 {
    let (at, _) = place(block * BLOCK_PAGES);
    page.bytes(at, 16).first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

/// How many pages are free whose bits this page has, the header or a home.
pub fn count(page: PageRef<'_>, home: u32) -> u32 {
    let span = span(home);
    let bytes = page.bytes(BITS_AT, (span.end - span.start) as usize / 8);
    bytes.iter().map(|byte| byte.count_ones()).sum()
}

/// `page` is the number's home.
pub fn set(page: &mut PageMut<'_>, number: u32, free: bool) {
    let (at, bit) = place(number);
    let byte = page.get().u8(at);
    page.write_u8(at, if free { byte | bit } else { byte & !bit });
}

/// Sets the bits of a run of numbers whose home `page` is. Returns how many were not set.
pub fn set_free(page: &mut PageMut<'_>, mut run: Range<u32>) -> u32 {
    let fresh = run.clone().filter(|number| !is_free(page.get(), *number)).count() as u32;
    let whole = run.start.next_multiple_of(8)..run.end / 8 * 8;
    if whole.start < whole.end {
        page.fill(place(whole.start).0, (whole.end - whole.start) as usize / 8, 0xFF);
        (whole.end..run.end).for_each(|number| set(page, number, true));
        run.end = whole.start;
    }
    run.for_each(|number| set(page, number, true));
    fresh
}

/// The numbers of bits that are set, lowest first.
pub fn numbers(block: u32, mut bits: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let number = (bits != 0).then(|| block * BLOCK_PAGES + bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(number)
    })
}

#[cfg(test)]
mod tests;
