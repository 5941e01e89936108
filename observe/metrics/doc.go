// Package metrics counts what the core announces.
//
// [Metrics] is an observe.Listener and a proxy.Follower. It keeps three things:
//
//   - kube-proxy's metrics, with its names, labels and buckets, so that
//     dashboards, alerts and load tests work unchanged;
//   - Sluice's own, sluice_…, with finer buckets: upstream's latency histogram
//     starts where our work has long ended;
//   - a roster of the Services that have an actor, one small record each, shown
//     at /metrics/services and never at /metrics, whose size must not depend on
//     the number of Services.
//
// What the core knows better than any listener (sizes, ages, what waits) is not
// counted along but asked for when somebody looks; see [Metrics.Attach].
// docs/metrics.md says what each metric means here.
//
// Nothing in this package blocks those who tell it something: counters are
// atomic, and the roster's locks are held for one record, or for the copying of
// one part of it.
package metrics
