// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// dumpFileMax bounds each file of an archive, which is in memory while it is written.
	dumpFileMax = 32 << 20
	// toolTime bounds one run of a tool.
	toolTime = 20 * time.Second
	// dumpTroubled and dumpRecent bound the Services with a file each: those that are not applied,
	// and those that changed last.
	dumpTroubled, dumpRecent = 100, 100
)

// Dump writes an archive for a bug report. It contains no secrets: no file that the configuration names is read, and
// addresses lose their passwords.
func (i *Inspection) Dump(ctx context.Context, to io.Writer) error {
	packed := gzip.NewWriter(to)
	a := &archive{ctx: ctx, tar: tar.NewWriter(packed), made: time.Now(),
		folder: "sluice-dump-" + i.Node + "/"}
	i.fill(a)
	return a.end(packed)
}

func (i *Inspection) fill(a *archive) {
	status := i.Status()
	a.json("status.json", "sluice status -o json", &status)
	a.table("status.txt", "sluice status", &status, false)
	a.versions(i.Options.Version)
	a.json("health.json", "the findings of health", i.Monitor.Report())
	a.json("configuration.json", "the configuration applied, without secrets", i.configuration())
	a.add("metrics.txt", "all metrics", func(to io.Writer) error {
		request, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "/metrics", nil)
		if err == nil {
			i.Metrics.Handler().ServeHTTP(answerTo{to, http.Header{}}, request)
		}
		return err
	})
	a.add("goroutines.txt", "the stacks of all goroutines, equal ones counted", func(to io.Writer) error {
		return pprof.Lookup("goroutine").WriteTo(to, 1)
	})
	i.services(a)
	for _, t := range i.tools() {
		a.add("kernel/"+t.File, strings.Join(t.Command, " "), func(to io.Writer) error { return t.run(a.ctx, to) })
	}
	for _, path := range kernelFiles {
		a.file("kernel/proc/"+path, "/proc/"+path)
	}
	a.file("sysctls.json", filepath.Join(i.Options.Sluice.State.Dir, "sysctls.json"))
}

// services adds the list of all Services, and a file for some of them.
func (i *Inspection) services(a *archive) {
	list := inspect.ServiceList{APIVersion: inspect.Version, Now: a.made.UTC(), Items: []inspect.Service{}}
	i.Services(a.ctx, func(service.Key) bool { return true }, func(s *inspect.Service) bool {
		list.Items = append(list.Items, *s)
		return true
	})
	a.json("services.json", "sluice get services -o json", &list)
	a.table("services.txt", "sluice get services -o wide", &list, true)
	slices.SortStableFunc(list.Items, func(x, y inspect.Service) int { return y.LastChange.Compare(x.LastChange) })
	troubled, recent := 0, 0
	for _, s := range list.Items {
		switch {
		case s.State != state.Applied && troubled < dumpTroubled:
			troubled++
		case recent < dumpRecent:
			recent++
		default:
			continue
		}
		key := service.Key{Namespace: s.Namespace, Name: s.Name}
		name := "services/" + s.Namespace + "/" + s.Name
		if detail := i.Service(a.ctx, key); detail != nil {
			detail.APIVersion, detail.Now = inspect.Version, time.Now().UTC()
			a.table(name+".txt", "sluice describe service "+key.String(), detail, false)
			a.json(name+".json", "sluice describe service "+key.String()+" -o json", detail)
		}
		if endpoints := i.Endpoints(a.ctx, key); endpoints != nil {
			endpoints.APIVersion, endpoints.Now = inspect.Version, time.Now().UTC()
			a.table(name+"-endpoints.txt", "sluice get endpoints "+key.String(), endpoints, false)
		}
	}
}

// configuration returns what is applied and the flags, without passwords in addresses.
func (i *Inspection) configuration() map[string]any {
	now := *i.Current()
	shown := map[string]any{"kubeproxy.config.k8s.io": now.KubeProxy, "sluice.dev": now.Sluice, "source": withoutPassword(i.Feed.Origin)}
	if i.FlagValues != nil {
		flags := i.FlagValues()
		for name, value := range flags {
			flags[name] = withoutPassword(value)
		}
		shown["flags"] = flags
	}
	return shown
}

// withoutPassword removes the user, the password and the query of each URL in a text.
func withoutPassword(text string) string {
	words := strings.Fields(text)
	for n, word := range words {
		if u, err := url.Parse(word); err == nil && u.Host != "" && (u.User != nil || u.RawQuery != "") {
			u.User, u.RawQuery = nil, ""
			words[n] = u.String()
		}
	}
	return strings.Join(words, " ")
}

// versions adds the versions of the program, the kernel and the tools.
func (a *archive) versions(program string) {
	a.add("versions.txt", "versions of the program, the kernel and the tools", func(to io.Writer) error {
		var name unix.Utsname
		_ = unix.Uname(&name) // it cannot fail
		_, _ = fmt.Fprintf(to, "sluice %s (%s, %s/%s)\nkernel %s %s\n", program, runtime.Version(), runtime.GOOS, runtime.GOARCH,
			unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Version[:]))
		for _, command := range [][]string{{"nft", "--version"}, {"iptables", "--version"}, {"ipset", "--version"}, {"ipvsadm", "--version"}, {"conntrack", "--version"}} {
			if err := (tool{Command: command}).run(a.ctx, to); err != nil {
				_, _ = fmt.Fprintf(to, "%s: %v\n", command[0], err)
			}
		}
		return nil
	})
}

// tool is a command that prints state of the kernel. If this node does not have it, its file contains the error.
type tool setup.Tool

var offloadTools = []tool{{"nft-offload.txt", []string{"nft", "list", "table", "inet", "sluice-offload"}}}

// rulesetFile contains the output of nft. iptables-save omits tables with rules that other programs made with nft, and
// prints some such rules without their matches.
const rulesetFile = "nft-ruleset.txt"

// iptablesTools returns those of a variant of iptables.
func iptablesTools(variant iptkernel.Variant) []tool {
	of := string(cmp.Or(variant, iptkernel.NFT))
	all := []tool{
		{"iptables-" + of + "-save.txt", []string{"iptables-" + of + "-save", "-c"}},
		{"ip6tables-" + of + "-save.txt", []string{"ip6tables-" + of + "-save", "-c"}},
	}
	if of == string(iptkernel.NFT) {
		all = append(all, tool{rulesetFile, []string{"nft", "-n", "list", "ruleset"}})
	}
	return all
}

// tools returns those of the mode.
func (i *Inspection) tools() (all []tool) {
	if !i.Backend.Mode.WithoutIPTables {
		all = iptablesTools(i.Backend.Variant)
	}
	for _, t := range i.Backend.Mode.Tools {
		all = append(all, tool(t))
	}
	if i.Backend.Mode.Offloads && i.Options.Sluice.NFTables.Offload == config.OffloadTCP {
		all = append(all, offloadTools...)
	}
	return all
}

// run writes the output of a tool.
func (t tool) run(ctx context.Context, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	printed := &bounded{left: dumpFileMax}
	cmd := exec.CommandContext(ctx, t.Command[0], t.Command[1:]...)
	both := io.MultiWriter(to, printed) // one writer, so one goroutine copies
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = both, both, time.Second
	err := cmd.Run()
	for _, table := range unprinted.FindAllStringSubmatch(printed.buffer.String(), -1) {
		_, _ = fmt.Fprintf(to, "\n%s cannot print table %s because of rules that another program made with nft; see %s.\n", strings.TrimSuffix(t.File, ".txt"), table[1], rulesetFile)
	}
	return err
}

// unprinted matches what iptables-save prints in place of a table that it cannot print. It exits with status 0.
var unprinted = regexp.MustCompile("(?m)^(?:# )?Table `([^']+)' is incompatible")

// kernelFiles are files below /proc about the kernel's state.
var kernelFiles = []string{"sys/net/ipv4/ip_forward", "sys/net/ipv6/conf/all/forwarding", "sys/net/ipv4/conf/all/route_localnet",
	"sys/net/netfilter/nf_conntrack_max", "sys/net/netfilter/nf_conntrack_count", "net/ip_tables_names", "modules"}

// answerTo is an http.ResponseWriter on a writer.
type answerTo struct {
	io.Writer
	header http.Header
}

func (a answerTo) Header() http.Header { return a.header }
func (a answerTo) WriteHeader(int)     {}

// archive is a .tar of files in one directory. After an error of the writer it does nothing more.
type archive struct {
	ctx    context.Context
	tar    *tar.Writer
	made   time.Time
	folder string
	about  []string
	err    error
}

// table adds an answer as a command prints it for people.
func (a *archive) table(name, about string, answer inspect.Answer, wide bool) {
	page := terminal.Page{Wide: wide}
	answer.Print(&page)
	a.add(name, about, func(to io.Writer) error { _, err := to.Write(page.Bytes()); return err })
}

// add adds a file. If its content cannot be read completely, the file ends with the error.
func (a *archive) add(name, about string, content func(to io.Writer) error) {
	if a.err != nil {
		return
	}
	if a.err = a.ctx.Err(); a.err != nil {
		return
	}
	text := &bounded{left: dumpFileMax}
	if err := content(text); err != nil {
		fmt.Fprintf(&text.buffer, "\nThis file is incomplete: %v\n", err)
	}
	if text.left < 0 {
		fmt.Fprintf(&text.buffer, "\nThis file is longer; it was cut after %d bytes.\n", dumpFileMax)
	}
	a.about = append(a.about, fmt.Sprintf("%-50s %s", name, about))
	a.put(name, text.buffer.Bytes())
}

func (a *archive) put(name string, content []byte) {
	header := &tar.Header{Name: a.folder + name, Mode: 0o600, Size: int64(len(content)), ModTime: a.made, Typeflag: tar.TypeReg}
	if a.err = a.tar.WriteHeader(header); a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) json(name, about string, content any) {
	a.add(name, about, func(to io.Writer) error {
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(content)
	})
}

// file adds a copy of a file, if there is one.
func (a *archive) file(name, path string) {
	if text, err := os.ReadFile(path); err == nil {
		a.add(name, path, func(to io.Writer) error { _, err := to.Write(text); return err })
	}
}

// index adds the list of the files in the archive.
func (a *archive) index() {
	if a.err == nil {
		a.put("INDEX.txt", []byte(strings.Join(a.about, "\n")+"\n"))
	}
}

// end completes the archive.
func (a *archive) end(packed io.Closer) error {
	a.index()
	return errors.Join(a.err, a.tar.Close(), packed.Close())
}

// bounded keeps what is written up to a bound, and drops the rest; left is negative then.
type bounded struct {
	buffer bytes.Buffer
	left   int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left >= 0 {
		b.buffer.Write(p[:min(len(p), b.left)])
		b.left -= len(p)
	}
	return len(p), nil
}
