//! Cutting an encoding to a length as tokenizers' strategy "longest first" does, after its special tokens were added.
//! The library's own truncation is a setting of the whole tokenizer, and it also builds every combination of the
//! pieces that are cut off: for two long texts a quadratic number of them.

use tokenizers::Encoding;

/// The positions that stay, in order.
pub fn kept(encoding: &Encoding, max_length: usize, cut_left: bool) -> Result<Vec<usize>, String> {
    let added = encoding.get_special_tokens_mask();
    let sequences = encoding.get_sequence_ids();
    let is_own = |at: usize, sequence: usize| added[at] == 0 && sequences[at].unwrap_or(0) == sequence;
    let count = |sequence| (0..encoding.len()).filter(|&at| is_own(at, sequence)).count();
    let (first, second) = (count(0), count(1));
    let num_added = encoding.len() - first - second;
    if num_added > max_length {
        return Err(format!("a length of {max_length} does not hold the {num_added} special tokens"));
    }
    let (keep_first, keep_second) = lengths(first, second, max_length - num_added);

    let window = |total, keep| if cut_left { total - keep..total } else { 0..keep };
    let windows = [window(first, keep_first), window(second, keep_second)];
    let mut seen = [0, 0];
    let stays = |at: &usize| {
        if added[*at] != 0 {
            return true;
        }
        let sequence = sequences[*at].unwrap_or(0).min(1);
        seen[sequence] += 1;
        windows[sequence].contains(&(seen[sequence] - 1))
    };
    Ok((0..encoding.len()).filter(stays).collect())
}

/// What is left of two texts of `first` and `second` tokens within `room`, as truncate_encodings of tokenizers has it:
/// the longer one gives way until both are half of the room; of an odd room the longer one gets the larger half.
fn lengths(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let (shorter, longer) = (first.min(second), first.max(second));
    let rest = room.saturating_sub(shorter);
    let (shorter, longer) = if rest >= shorter { (shorter, rest.min(longer)) } else { (room / 2, room - room / 2) };
    if first > second {
        (longer, shorter)
    } else {
        (shorter, longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_gives_way_first() {
        assert_eq!(lengths(3, 4, 7), (3, 4));
        assert_eq!(lengths(3, 9, 8), (3, 5));
        assert_eq!(lengths(9, 3, 8), (5, 3));
        assert_eq!(lengths(9, 9, 7), (3, 4));
        assert_eq!(lengths(10, 9, 7), (4, 3));
        assert_eq!(lengths(9, 0, 7), (7, 0));
        assert_eq!(lengths(5, 5, 0), (0, 0));
    }
}
