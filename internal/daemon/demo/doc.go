// Package demo tells a story in one minute: a sandbox, sample manifests, real
// backends, real connections through Service addresses, a change under load, an
// actor that panics and one that hangs. Every sentence is checked; the story
// ends well only if all of it held.
package demo
