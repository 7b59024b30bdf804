//! Sizes as people write and read them.

/// A unit, by the letters behind the number; capital or not.
const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Reads `2GiB`, `512 MB` or `1048576` as bytes; none when it is no size, or more than 64 bits
/// hold.
pub fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A number of bytes for people: the largest binary unit of which it is a whole number, or one
/// with a fraction of one digit.
pub fn show_bytes(bytes: u64) -> String {
    let units = [
        ("TiB", 1_u64 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    match units.iter().find(|(_, size)| bytes >= *size) {
        None => format!("{bytes} B"),
        Some((name, size)) => {
            let (whole, tenth) = (bytes / size, (bytes % size).saturating_mul(10) / size);
            match tenth {
                0 => format!("{whole} {name}"),
                _ => format!("{whole}.{tenth} {name}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (text, bytes) in [
            ("2GiB", Some(2 << 30)),
            ("512 mib", Some(512 << 20)),
            ("1MB", Some(1_000_000)),
            (" 4096 ", Some(4096)),
            ("7 B", Some(7)),
            ("", None),
            ("GiB", None),
            ("-1", None),
            ("1.5GiB", None),
            ("2 GiB more", None),
            ("99999999999999 TiB", None),
        ] {
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 20, "1 MiB"),
            (256 << 20, "256 MiB"),
            ((1 << 30) + (1 << 29), "1.5 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
