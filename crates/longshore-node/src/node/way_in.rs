//! The way into the pods of this node: `exec`, `attach` and connections to ports.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
};

use tokio::net::TcpStream;

use super::{Book, Node};
use crate::{
    log_book::AttemptWatch,
    network,
    pod::publish::PodRef,
    shim::{ExecTarget, record::directory_in_use},
    streams::{self, Declared, Joined, Process, StreamError, StreamSet},
};

impl Node {
    /// Whether the container runs.
    ///
    /// # Errors
    /// It does not, or there is no such pod here.
    pub fn check_running(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<(), StreamError> {
        let book = self.book(namespace, pod)?.book;
        streams::running(&book.borrow(), pod, container).map(drop)
    }

    /// Starts a command beside the program of a container: in its namespaces, with its environment and user.
    ///
    /// # Errors
    /// The container does not run, or no process can be started.
    pub fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        argv: Vec<String>,
        streams: StreamSet,
    ) -> Result<Process, StreamError> {
        let book = self.book(namespace, pod)?.book;
        let (_, init) = streams::running(&book.borrow(), pod, container)?;
        let target = ExecTarget {
            shim_command: self.shared.config.shim_command.clone(),
            init,
        };
        target
            .start(argv, streams)
            .map_err(|source| StreamError::Start {
                what: "run a command in",
                pod: pod.to_owned(),
                container: container.to_owned(),
                source,
            })
    }

    /// Joins the program of a container.
    ///
    /// # Errors
    /// The container does not run, or its input or log cannot be opened.
    pub async fn attach(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        declared: Declared,
        streams: StreamSet,
    ) -> Result<Process, StreamError> {
        let Book {
            uid,
            book,
            commands,
            ..
        } = self.book(namespace, pod)?;
        let (id, _) = streams::running(&book.borrow(), pod, container)?;
        let this = PodRef {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
            uid,
        };
        let joined = Joined {
            directory: directory_in_use(&self.shared.pods_dir().join(&this.uid), &id),
            log: self.shared.written_log(&this, &id),
            watch: AttemptWatch {
                book,
                container: id.container.clone(),
                attempt: id.attempt,
            },
            commands,
            id,
        };
        let process = joined.attach(declared, streams).await;
        process.map_err(|source| StreamError::Start {
            what: "attach to",
            pod: pod.to_owned(),
            container: container.to_owned(),
            source,
        })
    }

    /// Where the API server listens on the host's network, if that is not
    /// [`NodeConfig::api_server`](crate::NodeConfig::api_server). Pods with a network of their own reach it from now on at
    /// the first address of Services, and as `kubernetes.default.svc`.
    pub fn set_api_server(&self, address: SocketAddr) {
        self.shared.network.set_api_server(address);
    }

    /// Whether this is an address of pods that have a network of their own, which only [`connect`](Self::connect) reaches.
    #[must_use]
    pub fn is_in_pod_network(&self, address: Ipv4Addr) -> bool {
        network::is_of_a_pod(address)
    }

    /// Connects to a port at the address of a pod of this node. A pod that has a network of its own is reached from
    /// inside of its network; another address from the host's.
    ///
    /// # Errors
    /// Nothing listens there, or the networks of pods are not available.
    pub async fn connect(&self, address: SocketAddrV4) -> io::Result<TcpStream> {
        self.shared.network.connect(address).await
    }

    /// Connects to a port of a pod, as a process of the pod would: what listens at its loopback address only is reached, too.
    ///
    /// # Errors
    /// There is no such pod here, or nothing accepts connections at the port.
    pub async fn connect_to_pod(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
    ) -> Result<TcpStream, StreamError> {
        let Book { uid, address, .. } = self.book(namespace, pod)?;
        let address = self.shared.pod_address(address);
        let connected = streams::connect_to_pod(&address, &uid, port).await;
        connected.map_err(|source| StreamError::Connect {
            pod: pod.to_owned(),
            port,
            source,
        })
    }

    fn book(&self, namespace: &str, pod: &str) -> Result<Book, StreamError> {
        let key = (namespace.to_owned(), pod.to_owned());
        let book = self.shared.books().get(&key).cloned();
        book.ok_or_else(|| StreamError::NoPod {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
        })
    }
}
