// SPDX-License-Identifier: Apache-2.0

// Package reduce turns Kubernetes API objects into service values.
//
// Every function is pure, keeps no reference to the object it was given, and
// accepts objects that the API server would reject: what cannot be used is left
// out, and a Warning names the object and field and says what happens instead.
// A nil result means that the object does not concern a proxy.
package reduce
