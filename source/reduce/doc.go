// Package reduce turns Kubernetes API objects into service values.
//
// Every function is pure, keeps no reference to the object it was given, and
// accepts objects that the API server would refuse: what cannot be used is left
// out, and a Warning says which field of which object and what happens instead.
// A nil result means that the object is none of a proxy's business.
package reduce
