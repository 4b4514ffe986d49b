//! Lines of text with an end that proves them: the form of small objects that a person may read.

/// The lines, and one with their number and checksum (CRC-32C, hexadecimal).
pub fn seal(lines: &[String]) -> Vec<u8> {
    let mut text = lines.join("\n");
    text.push('\n');
    let end = format!("end {} {:08x}\n", lines.len(), crc32c::crc32c(text.as_bytes()));
    text.push_str(&end);
    text.into_bytes()
}

/// The lines before the end, if the end is right. Accepts any bytes.
pub fn open(bytes: &[u8]) -> Result<Vec<&str>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let cut = "it is cut off or changed";
    let before = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).ok_or(cut)? + 1;
    let (body, end) = text.split_at(before);
    let lines: Vec<&str> = body.lines().collect();
    let right = end == format!("end {} {:08x}\n", lines.len(), crc32c::crc32c(body.as_bytes()));
    if right { Ok(lines) } else { Err(cut) }
}
