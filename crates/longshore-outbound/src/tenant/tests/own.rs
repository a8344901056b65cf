//! Addresses of this machine's own interfaces.

use std::io;

use super::*;
use crate::connector::Found;

/// An address that no machine has (RFC 5737): a connection to it would end with the limit.
const NOBODY: [u8; 4] = [198, 51, 100, 7];

/// A machine whose names all mean [`NOBODY`].
#[derive(Debug)]
struct Machine {
    /// `None` where the kernel does not list its addresses.
    own: Option<Vec<IpAddr>>,
}

impl LookUp for Machine {
    fn look_up<'a>(&'a self, _: &'a str, port: u16) -> Found<'a> {
        let address = SocketAddr::from((NOBODY, port));
        Box::pin(std::future::ready(Ok(vec![address])))
    }

    fn own_addresses(&self) -> io::Result<Vec<IpAddr>> {
        let own = self.own.clone();
        own.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }
}

async fn asked_on(machine: Machine) -> OutboundError {
    let trust = Trust::Pem(AUTHORITY.as_bytes());
    let names = Arc::new(machine);
    let client = TenantClient::looking_up_with(
        names,
        Arc::default(),
        trust,
        Limits::default(),
        Permit::always(),
    )
    .unwrap();
    client.get("http://own.example.test/").await.unwrap_err()
}

#[tokio::test]
async fn a_name_of_an_own_address_is_refused_and_without_knowing_them_nobody_is_asked() {
    let own = vec![IpAddr::from(NOBODY)];
    let refused = asked_on(Machine { own: Some(own) }).await;
    assert!(
        matches!(refused, OutboundError::NotAllowed(_)),
        "{refused:?}"
    );
    let unknown = asked_on(Machine { own: None }).await;
    assert!(
        matches!(unknown, OutboundError::NotReached(_)),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn no_address_of_this_machines_interfaces_may_be_reached() {
    let own = SystemLookUp.own_addresses().unwrap();
    assert!(own.contains(&IpAddr::from([127, 0, 0, 1])), "{own:?}");
    for address in own {
        let url = format!("http://{}/", SocketAddr::new(address, 1));
        let reached = TenantClient::may_reach(&Boundaries::default(), &url).await;
        assert!(
            matches!(reached, Err(OutboundError::NotAllowed(_))),
            "{url}: {reached:?}"
        );
        let asked = posted(Arc::default(), &url).await;
        assert!(
            matches!(asked, Err(OutboundError::NotAllowed(_))),
            "{url}: {asked:?}"
        );
    }
}
