package config

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version is what --version asks for. It implements pflag.Value.
type Version struct {
	// Show asks to print the version and do nothing else, Raw with all details.
	Show, Raw bool
	// Reported, when not empty, is the version to report instead of the real one,
	// for example v1.36.0.
	Reported string
}

// versionText matches a version as Kubernetes writes it.
var versionText = regexp.MustCompile(`^v\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)

// Set reads the value of the flag.
func (v *Version) Set(text string) error {
	show, err := strconv.ParseBool(text)
	switch {
	case text == "raw":
		*v = Version{Show: true, Raw: true}
	case versionText.MatchString(text):
		*v = Version{Reported: text}
	case err != nil:
		return fmt.Errorf("want true, false, raw or a version like v1.36.0")
	default:
		*v = Version{Show: show}
	}
	return nil
}

// String gives the value as the flag takes it.
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
