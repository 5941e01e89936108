package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Variant is one of the two implementations of iptables. They fill different
// tables in the kernel and do not see each other's rules.
type Variant string

// The variants, in the order in which they are preferred when nothing speaks
// for either, not even the iptables in PATH.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// programs are the programs of one variant and family.
type programs struct {
	variant                 Variant
	version                 version
	iptables, restore, save string
}

// version of the programs.
type version [3]int

// versionMin is the first that waits for the lock for a stated time in
// iptables-restore and knows --random-fully.
var versionMin = version{1, 6, 2}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) less(other version) bool {
	for i := range v {
		if v[i] != other[i] {
			return v[i] < other[i]
		}
	}
	return false
}

// findPrograms looks for the programs with the variant in their names
// (iptables-nft-restore), then for those without when they say that they are
// of this variant.
func findPrograms(ctx context.Context, family service.Family, variant Variant) (programs, error) {
	base := baseName(family)
	var failed []error
	for _, name := range [...]string{base + "-" + string(variant), base} {
		found, err := programsNamed(ctx, name)
		switch {
		case err != nil:
			failed = append(failed, err)
		case found.variant != variant:
			failed = append(failed, fmt.Errorf("%s is of the %s variant", found.iptables, found.variant))
		case found.version.less(versionMin):
			return programs{}, &MissingError{
				Family: family,
				What:   fmt.Sprintf("%s is version %s, too old", found.iptables, found.version),
				Need:   fmt.Sprintf("iptables %s or newer", versionMin),
			}
		default:
			return found, nil
		}
	}
	return programs{}, &MissingError{
		Family: family,
		What:   fmt.Sprintf("the programs of the %s variant are not installed (%s-%s and its -restore and -save)", variant, base, variant),
		Need:   "the iptables programs (Debian package iptables) in PATH",
		Err:    errors.Join(failed...),
	}
}

// baseName is what the programs of a family are called without a variant.
func baseName(family service.Family) string {
	if family == service.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// programsNamed looks up the three programs of one name and asks the first what
// it is.
func programsNamed(ctx context.Context, name string) (found programs, err error) {
	for _, p := range []struct {
		path *string
		name string
	}{{&found.iptables, name}, {&found.restore, name + "-restore"}, {&found.save, name + "-save"}} {
		if *p.path, err = exec.LookPath(p.name); err != nil {
			return programs{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	printed, err := exec.CommandContext(ctx, found.iptables, "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("%s --version: %w", found.iptables, err)
	}
	found.version, found.variant, err = parseVersion(string(printed))
	return found, err
}

// versionTimeout bounds asking a program for its version, which takes 2 ms.
const versionTimeout = 10 * time.Second

var versionPrinted = regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)(?: \((\w+)\))?`)

// parseVersion reads "iptables v1.8.9 (nf_tables)". Before 1.8 there was one
// variant, and no name for it.
func parseVersion(printed string) (version, Variant, error) {
	match := versionPrinted.FindStringSubmatch(printed)
	if match == nil {
		return version{}, "", fmt.Errorf("no version of iptables in %q", printed)
	}
	var v version
	for i := range v {
		// The pattern lets only digits through; one that overflows stays at
		// the largest number, which is new enough.
		v[i], _ = strconv.Atoi(match[i+1])
	}
	if match[4] == "nf_tables" {
		return v, NFT, nil
	}
	return v, Legacy, nil
}
