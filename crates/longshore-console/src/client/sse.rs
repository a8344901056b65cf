//! Server-sent events from bytes.

/// No event is larger; a service that sends a larger one is none of ours.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) data: String,
}

/// An event has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
pub(super) struct TooLarge;

/// Decodes a stream of events; holds what has arrived of the next event.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    event: Event,
}

impl Decoder {
    /// Takes bytes, and returns the events that are complete with them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() + self.event.data.len() > MAX_EVENT_BYTES {
                return Err(TooLarge);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                events.extend(self.line(line.trim_end_matches(['\r', '\n'])));
            }
        }
        Ok(events)
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != Event::default()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // Comments (an empty field name) and fields of a newer service.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, name: &str, data: &str) -> Event {
        Event {
            id: (!id.is_empty()).then(|| id.to_owned()),
            name: name.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let text = ":\n\nid: 1\nevent: change\ndata: {\"a\":\ndata: \"ü\"}\n\n: alive\n\nevent:reset\r\nnew: x\r\n\r\nid: 2\n";
        let expected = [
            event("1", "change", "{\"a\":\n\"ü\"}"),
            event("", "reset", ""),
        ];
        for size in 1..text.len() {
            let mut decoder = Decoder::default();
            let events: Vec<Event> = text
                .as_bytes()
                .chunks(size)
                .flat_map(|chunk| decoder.push(chunk).unwrap())
                .collect();
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut decoder = Decoder::default();
        let chunk = vec![b'x'; MAX_EVENT_BYTES];
        assert_eq!(decoder.push(&chunk), Ok(Vec::new()));
        assert_eq!(decoder.push(&chunk), Err(TooLarge));
    }
}
