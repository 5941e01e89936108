// Package apitest is a small API server for tests: it lists and watches the
// resources that a proxy reads over HTTP, in JSON and protobuf, with and without
// streamed lists, obeys selectors, takes events, keeps a history that can be
// compacted, and can be stopped and started again under the same address.
//
// Unlike a real one it validates nothing. Tests of what a proxy makes of objects
// that no server of today would take need that; everything else has the real
// server of test/e2e as its judge.
package apitest
