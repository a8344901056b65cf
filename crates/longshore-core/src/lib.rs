//! The pure vocabulary of every controller: Seen, Plan, Action, Next, backoff, names, the pod-template merge.
