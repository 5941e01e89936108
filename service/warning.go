package service

import "fmt"

// Warning says that a part of an API object cannot be used. The rest of the
// object is still served.
type Warning struct {
	// Object is the kind and name, for example "Service ns1/svc1".
	Object string
	// Field is the path of the offending field, for example
	// "spec.externalIPs[1]".
	Field string
	// Problem says what is wrong and what happens instead.
	Problem string
}

// String gives "Service ns1/svc1: spec.externalIPs[1]: …".
func (w Warning) String() string {
	return fmt.Sprintf("%s: %s: %s", w.Object, w.Field, w.Problem)
}
