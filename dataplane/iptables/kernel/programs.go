// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Variant is one of the two implementations of iptables. They fill different tables in the kernel
// and do not see each other's rules.
type Variant string

// The variants. Detect prefers the first one if nothing else decides, not even the iptables in PATH.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// programs are the programs of one variant and family.
type programs struct {
	variant                 Variant
	version                 version
	iptables, restore, save string
	// library runs iptables.
	library *goiptables.IPTables
}

// version of the programs, or of the kernel.
type version [3]int

// versionMin is the first version whose iptables-restore waits for the lock for a given time. It
// also supports --random-fully.
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

// MissingError means that the node lacks something that a family needs. A retry does not help until
// the node is changed.
type MissingError struct {
	Family service.Family
	// What describes the problem as a clause: "the kernel has no IPv6".
	What string
	// Need names what is needed.
	Need string
	// Err is the cause, if known.
	Err error
}

// Error names what is missing and what is needed instead.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("iptables for %s cannot be used: %s; needed: %s", e.Family, e.What, e.Need)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// findPrograms looks for the programs with the variant in their names (iptables-nft-restore), then
// for those without, if their --version reports this variant. waitSeconds limits the wait for the
// lock.
func findPrograms(
	ctx context.Context, family service.Family, variant Variant, waitSeconds int,
) (programs, error) {
	base := baseName(family)
	var failed []error
	for _, name := range [...]string{base + "-" + string(variant), base} {
		found, err := programsNamed(ctx, name, waitSeconds)
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
		What: fmt.Sprintf("the programs of the %s variant are not installed "+
			"(%s-%[1]s and its -restore and -save)", variant, base),
		Need: "the iptables programs (Debian package iptables) in PATH",
		Err:  errors.Join(failed...),
	}
}

// baseName returns the name of a family's programs without a variant.
func baseName(family service.Family) string {
	if family == service.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// versionTimeout limits a program's --version, which takes 2 ms.
const versionTimeout = 10 * time.Second

// programsNamed looks up the three programs of one name and reads the version of the first.
func programsNamed(ctx context.Context, name string, waitSeconds int) (found programs, err error) {
	for _, p := range []struct {
		path *string
		name string
	}{{&found.iptables, name}, {&found.restore, name + "-restore"}, {&found.save, name + "-save"}} {
		if *p.path, err = exec.LookPath(p.name); err != nil {
			return programs{}, err
		}
	}
	// go-iptables reads the variant, too, but neither returns it nor limits the time of the call.
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	printed, err := exec.CommandContext(ctx, found.iptables, "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("%s --version: %w", found.iptables, err)
	}
	found.variant = Legacy // before 1.8 there was only this variant, and --version did not name it
	if bytes.Contains(printed, []byte("(nf_tables)")) {
		found.variant = NFT
	}
	// The path decides the family: the library's own setting for it only chooses a path.
	found.library, err = goiptables.New(goiptables.Timeout(waitSeconds), goiptables.Path(found.iptables))
	if err != nil {
		return programs{}, fmt.Errorf("%s: %w", found.iptables, err)
	}
	found.version[0], found.version[1], found.version[2] = found.library.GetIptablesVersion()
	return found, nil
}

// presence is an input that creates a chain in nat and one in filter, hooks each wherever this mode has hooks, and
// removes everything again. Each table is one transaction.
var presence = func() string {
	text := &strings.Builder{}
	for _, table := range []render.Table{render.NAT, render.Filter} {
		fmt.Fprintf(text, "*%s\n:SLUICE-PROBE - [0:0]\n", table)
		for _, chain := range render.HookedChains(table) {
			fmt.Fprintf(text, "-I %s 1 -j SLUICE-PROBE\n-D %[1]s -j SLUICE-PROBE\n", chain)
		}
		text.WriteString("-X SLUICE-PROBE\nCOMMIT\n")
	}
	return text.String()
}()

// Present returns nil if the tables nat and filter can be written, so that the family can be served. With dry, the
// program only checks the input. It returns a *MissingError if the node does not have the tables, or a *ToolError if
// the tool fails temporarily. Rules of other programs in the tables do not matter.
func (e *Exec) Present(ctx context.Context, dry bool) error {
	args := []string{"--noflush", "-w", strconv.Itoa(e.waitSeconds)}
	if dry {
		args = append(args, "--test")
	}
	_, err := e.run(ctx, []byte(presence), e.programs.restore, args...)
	if err == nil && dry && e.programs.variant == NFT {
		err = e.occupied(ctx)
	}
	toolErr, ok := errors.AsType[*ToolError](err)
	if !ok || toolErr.Outcome == dataplane.Busy || toolErr.Outcome == dataplane.Unknown {
		return err
	}
	return &MissingError{
		Family: e.family,
		What:   "writing a chain to the tables nat and filter failed",
		Need: "CAP_NET_ADMIN, and a kernel with the nat table of the " + string(e.Variant()) +
			" variant (kernel modules " + e.natModules() + ")",
		Err: err,
	}
}

// natModules names the kernel modules behind the nat table.
func (e *Exec) natModules() string {
	switch {
	case e.Variant() == NFT:
		return "nf_tables, nft_chain_nat and nft_compat"
	case e.family == service.IPv6:
		return "ip6_tables and ip6table_nat"
	}
	return "ip_tables and iptable_nat"
}

// randomFullyKernel is the first kernel that supports --random-fully in both families; older ones
// reject it.
var randomFullyKernel = version{3, 14, 0}

// RandomFully reports whether MASQUERADE supports --random-fully here. It makes the program check an
// input without committing it, so it changes nothing. False without an error is certain.
// (go-iptables's HasRandomFully checks only the program's version.)
func (e *Exec) RandomFully(ctx context.Context) (bool, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false, fmt.Errorf("read the kernel's version: %w", err)
	}
	if parseKernel(unix.ByteSliceToString(uts.Release[:])).less(randomFullyKernel) {
		return false, nil
	}
	const input = "*nat\n:KUBE-PROXY-CANARY - [0:0]\n" +
		"-A KUBE-PROXY-CANARY -j MASQUERADE --random-fully\nCOMMIT\n"
	_, err := e.run(ctx, []byte(input), e.programs.restore,
		"--test", "--noflush", "-w", strconv.Itoa(e.waitSeconds))
	toolErr, ok := errors.AsType[*ToolError](err)
	if ok && (toolErr.Outcome == dataplane.Rejected || toolErr.Outcome == dataplane.Unsupported) {
		return false, nil
	}
	return err == nil, err
}

// parseKernel reads the start of a kernel release: 6.1.0-18-amd64.
func parseKernel(release string) version {
	var v version
	// Parts that are not numbers stay zero: an unreadable release counts as old.
	_, _ = fmt.Sscanf(release, "%d.%d.%d", &v[0], &v[1], &v[2])
	return v
}

// Kernel parameters, below /proc/sys, which shows each thread its own network namespace.
const (
	// RouteLocalnet lets packets for 127.0.0.0/8 leave through other interfaces; see EnsureRouteLocalnet.
	RouteLocalnet = "net/ipv4/conf/all/route_localnet"
	tcpBeLiberal  = "net/netfilter/nf_conntrack_tcp_be_liberal"
)

// AdviceRouteLocalnet is the advice for a node on which route_localnet cannot be set.
const AdviceRouteLocalnet = "set it yourself, run privileged, or do without node ports on localhost " +
	"(iptables.localhostNodePorts: false, or nodePortAddresses without loopback addresses)"

// Sysctls are the kernel parameters of the process's network namespace, named by their paths below
// /proc/sys. The implementation decides whether to record the previous values.
type Sysctls interface {
	// Read returns a value, or fs.ErrNotExist for a missing parameter.
	Read(path string) (string, error)
	// Ensure sets a value unless it is set already, and reports whether it did. The error names
	// the parameter and ends with the advice.
	Ensure(path, value, advice string) (changed bool, err error)
}

// EnsureRouteLocalnet lets packets for 127.0.0.0/8 leave through other interfaces, which node ports
// on localhost need (IPv4 only), and reports whether it changed the setting. Before a change it calls
// protect, which blocks packets from neighbors to 127.0.0.0/8 (see Firewall). It never resets the setting.
func EnsureRouteLocalnet(s Sysctls, protect func() error) (changed bool, err error) {
	if value, err := s.Read(RouteLocalnet); err != nil || value != "1" {
		if err := protect(); err != nil {
			return false, err
		}
	}
	return s.Ensure(RouteLocalnet, "1", AdviceRouteLocalnet)
}

// TCPBeLiberal reports whether conntrack is liberal with TCP packets that it would find invalid; then no rule
// may drop invalid packets. If the kernel has not loaded conntrack yet, its default applies: false.
func TCPBeLiberal(s Sysctls) (bool, error) {
	value, err := s.Read(tcpBeLiberal)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && value != "0", err
}
