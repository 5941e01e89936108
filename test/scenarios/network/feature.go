package network

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// features are what a kernel may lack, and how to find out.
var features = map[string]func() error{
	"sctp": func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
		if err != nil {
			return fmt.Errorf("this kernel has no SCTP (%w): played in the virtual machine", err)
		}
		return unix.Close(fd)
	},
}

// Has says why a feature is missing here, or nil.
func Has(feature string) error {
	find, ok := features[feature]
	if !ok {
		return fmt.Errorf("nobody knows the feature %q", feature)
	}
	return find()
}
