package service

import "strings"

// Key names one Service. It is the address of an actor, the key of its mailbox
// and the owner of its objects in the kernel; nothing else identifies a
// Service.
type Key struct {
	Namespace string
	Name      string
}

// Node is the reserved key under which node-wide facts travel. It cannot
// collide with a Service: the API gives every Service a namespace.
var Node = Key{Name: "node"}

// String gives "namespace/name", the form kube-proxy uses in rule comments, and
// "node" for the reserved key.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// PortString names a service port of the Service as kube-proxy does in rule
// comments and in the hashes of chain names: "namespace/name:port", or
// "namespace/name" for the unnamed port.
func (k Key) PortString(portName string) string {
	if portName == "" {
		return k.String()
	}
	return k.String() + ":" + portName
}

// ParseKey is the reverse of String.
func ParseKey(text string) Key {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		return Key{Name: text}
	}
	return Key{Namespace: namespace, Name: name}
}

// Compare orders keys by namespace, then name.
func (k Key) Compare(other Key) int {
	if c := strings.Compare(k.Namespace, other.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, other.Name)
}
