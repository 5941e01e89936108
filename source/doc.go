// Package source turns what the Kubernetes API says into the values of package
// service, and keeps them.
//
//	source/kube ─────┐
//	                 ├─► source/reduce ─► Cache ─► Sink (the directory of actors)
//	source/manifest ─┘                      ▲
//	                                        └─ Snapshot(key), asked by an actor
//
// Exactly one of the two feeders runs in a process: source/kube watches an API
// server, source/manifest follows a directory of files. Both reduce API objects
// to values and hand those to the Cache, which owns "the API cache": it knows
// the newest value of every object, posts only what really differs, and answers
// Snapshot when an actor has to rehydrate.
//
// Everything here is level-triggered. A post says what an object is now; losing
// one is repaired by the next Snapshot. Losing the API server, or the directory,
// changes nothing: the last known values stay until the source says otherwise.
package source
