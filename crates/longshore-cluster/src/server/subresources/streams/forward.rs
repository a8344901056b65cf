//! Port-forwarding over the channels of a WebSocket: two for each port on the URL, data and error.

use std::{convert::Infallible, io, sync::Arc};

use bytes::Bytes;
use futures::future::try_join_all;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

use super::{
    channels::{Demux, Input, Protocol},
    relay::{CHUNK, heartbeat, part},
};
use crate::server::{
    error::{ApiError, Result},
    meta,
    streams::{Place, Places, PodConnection, PodStreams},
    wire::websocket::{Receiver, Sender},
};

/// Ports of one request: each has two of the 256 channels.
const PORTS_LIMIT: usize = 100;
/// Pieces of data that wait for a port; then the client waits.
pub(super) const WAITING: usize = 4;

/// The pod whose ports are forwarded.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) source: Arc<dyn PodStreams>,
    pub(super) pod: Arc<Value>,
    pub(super) places: Places,
}

impl Target {
    /// A place among the pod's streams.
    pub(super) fn place(&self) -> Result<Place> {
        let uid = meta::text(&self.pod, "/metadata/uid");
        self.places.take(uid, meta::name(&self.pod))
    }

    /// A connection to one port, which counts among the pod's streams.
    pub(super) async fn connect(&self, port: u16) -> Result<(PodConnection, Place)> {
        let place = self.place()?;
        let connection = self.source.connect(&self.pod, port).await?;
        Ok((connection, place))
    }

    /// The same, with the failure in the words that clients print.
    pub(super) async fn forward(&self, port: u16) -> Result<(PodConnection, Place), String> {
        self.connect(port).await.map_err(|error| {
            let pod = meta::name(&self.pod);
            format!("error forwarding port {port} to pod {pod}: {error}")
        })
    }
}

/// The ports that a URL names.
pub(super) fn ports<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<u16>> {
    let ports: Vec<u16> = texts
        .flat_map(|text| text.split(','))
        .map(|text| match text.parse::<u16>() {
            Ok(port @ 1..) => Ok(port),
            Ok(0) | Err(_) => Err(ApiError::bad_request(format!(
                "expected a port between 1 and 65535 in \"ports\", found {text:?}"
            ))),
        })
        .collect::<Result<_>>()?;
    match ports.len() {
        1..=PORTS_LIMIT => Ok(ports),
        n => Err(ApiError::bad_request(format!(
            "expected 1 to {PORTS_LIMIT} ports in the query parameter \"ports\", found {n}"
        ))),
    }
}

/// Forwards until all ports are through or the client has gone.
pub(super) async fn forward(
    mut receiver: Receiver,
    sender: Sender,
    protocol: Protocol,
    ports: Vec<u16>,
    target: Target,
) -> io::Result<()> {
    let mut to_ports = Vec::new();
    let mut lanes = Vec::new();
    for (port, channel) in ports.into_iter().zip((0_u8..).step_by(2)) {
        for channel in [channel, channel + 1] {
            let number = port.to_le_bytes();
            protocol.send(&sender, channel, &number).await?;
        }
        let (to_port, from_client) = mpsc::channel(WAITING);
        to_ports.push(to_port);
        lanes.push(Lane {
            port,
            channel,
            protocol,
            from_client,
            sender: sender.clone(),
            target: target.clone(),
        });
    }
    let work = async {
        try_join_all(lanes.into_iter().map(Lane::run)).await?;
        part(&sender).await
    };
    tokio::select! {
        result = work => result,
        result = input(&mut receiver, protocol, &to_ports) => result,
        error = heartbeat(&sender) => error,
    }
}

async fn input(
    receiver: &mut Receiver,
    protocol: Protocol,
    to_ports: &[mpsc::Sender<Bytes>],
) -> io::Result<()> {
    let mut demux = Demux::new(protocol);
    while let Some(piece) = receiver.next().await? {
        let Some(Input::Data { channel, bytes, .. }) = demux.take(piece)? else {
            continue;
        };
        let port = to_ports.get(usize::from(channel / 2));
        if let Some(port) = port.filter(|_| channel.is_multiple_of(2) && !bytes.is_empty()) {
            // A port whose connection has ended takes nothing more.
            drop(port.send(bytes).await);
        }
    }
    Ok(())
}

/// One port.
struct Lane {
    port: u16,
    /// The channel of its data; the next one is for its errors.
    channel: u8,
    protocol: Protocol,
    from_client: mpsc::Receiver<Bytes>,
    sender: Sender,
    target: Target,
}

impl Lane {
    async fn run(self) -> io::Result<()> {
        let Lane {
            port,
            channel,
            protocol,
            mut from_client,
            sender,
            target,
        } = self;
        let (connection, _place) = match target.forward(port).await {
            Ok(connected) => connected,
            Err(why) => return protocol.send(&sender, channel + 1, why.as_bytes()).await,
        };
        let (mut read, mut write) = tokio::io::split(connection);
        let up = async {
            while let Some(bytes) = from_client.recv().await {
                if write.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            from_client.close();
            std::future::pending::<Infallible>().await
        };
        let down = async {
            let mut buffer = vec![0; CHUNK];
            loop {
                match read.read(&mut buffer).await {
                    Ok(0) | Err(_) => return Ok::<_, io::Error>(()),
                    Ok(n) => protocol.send(&sender, channel, &buffer[..n]).await?,
                }
            }
        };
        tokio::select! {
            result = down => result,
            never = up => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_between_commas_or_in_several_options() {
        for (texts, expected) in [
            (&["80"][..], Some(vec![80])),
            (&["80,443"][..], Some(vec![80, 443])),
            (&["80", "65535"][..], Some(vec![80, 65_535])),
            (&[][..], None),
            (&["0"][..], None),
            (&["65536"][..], None),
            (&["-1"][..], None),
            (&["http"][..], None),
            (&["80,"][..], None),
            (&["1"; 101][..], None),
        ] {
            assert_eq!(ports(texts.iter().copied()).ok(), expected, "{texts:?}");
        }
    }
}
