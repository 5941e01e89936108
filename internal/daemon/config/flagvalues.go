// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net"
	"regexp"
	"strconv"

	netutils "k8s.io/utils/net"
)

// addressValue is a flag for an IP address; with port set, a port may follow. As in
// kube-proxy, an empty value keeps the default.
type addressValue struct {
	to   *string
	port bool
}

// Set implements pflag.Value.
func (v addressValue) Set(text string) error {
	host, _, err := net.SplitHostPort(text)
	switch {
	case text == "":
		return nil
	case netutils.ParseIPSloppy(text) != nil:
	case !v.port:
		return errors.New("must be an IP address")
	case err != nil || netutils.ParseIPSloppy(host) == nil:
		return errors.New("must be an IP address, optionally with a port, like 0.0.0.0:10256 or [::]:10256")
	}
	*v.to = text
	return nil
}

func (v addressValue) String() string {
	if v.to == nil {
		return "" // pflag compares defaults with the zero value
	}
	return *v.to
}

// Type names the kind of value in the usage.
func (v addressValue) Type() string {
	if v.port {
		return "ipport"
	}
	return "ip"
}

// Version is the value of --version. It implements pflag.Value.
type Version struct {
	// Show asks to print the version and exit, Raw to print all details.
	Show, Raw bool
	// Reported, if not empty, is the version to report instead of the real one, for
	// example v1.37.0.
	Reported string
}

// versionText matches a version as Kubernetes writes it.
var versionText = regexp.MustCompile(`^v\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)

// Set implements pflag.Value.
func (v *Version) Set(text string) error {
	show, err := strconv.ParseBool(text)
	switch {
	case text == "raw":
		*v = Version{Show: true, Raw: true}
	case versionText.MatchString(text):
		*v = Version{Reported: text}
	case err != nil:
		return errors.New("must be true, false, raw or a version like v1.37.0")
	default:
		*v = Version{Show: show}
	}
	return nil
}

// String returns the value as the flag takes it.
func (v *Version) String() string {
	switch {
	case v.Raw:
		return "raw"
	case v.Reported != "":
		return v.Reported
	default:
		return strconv.FormatBool(v.Show)
	}
}

// Type names the kind of value in the usage.
func (v *Version) Type() string { return "version" }
