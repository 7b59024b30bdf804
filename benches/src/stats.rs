//! Medians and percentiles.

/// The value below which `percent` of the samples lie, by nearest rank; 0 of none.
pub fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The middle sample, or the mean of the two in the middle; 0 of none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(below), Some(above)) if sorted.len().is_multiple_of(2) => (below + above) / 2.0,
        (_, Some(middle)) => *middle,
        (_, None) => 0.0,
    }
}

/// Of each round ours divided by its floor, and the median of that: what slowed the whole machine
/// down during a round slowed both.
pub fn median_ratio(ours: &[f64], floors: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(floors)
        .filter(|(_, floor)| **floor > 0.0)
        .map(|(ours, floor)| ours / floor)
        .collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(0, 1.0), (1, 1.0), (50, 50.0), (99, 99.0), (100, 100.0)] {
            assert_eq!(percentile(&samples, percent), expected, "{percent}");
        }
        assert_eq!(percentile(&[7.0], 99), 7.0);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn a_median_lies_in_the_middle() {
        for (samples, expected) in [
            (&[][..], 0.0),
            (&[3.0][..], 3.0),
            (&[4.0, 1.0][..], 2.5),
            (&[9.0, 1.0, 2.0][..], 2.0),
        ] {
            assert_eq!(median(samples), expected, "{samples:?}");
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The second round was slow for both, and a floor of nothing can be compared with nothing.
        let ratio = median_ratio(&[2.0, 20.0, 2.0, 5.0], &[1.0, 10.0, 1.0, 0.0]);
        assert_eq!(ratio, 2.0);
    }
}
