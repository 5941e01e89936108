// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// process is a program in the background; its output is in NAME.log.
type process struct {
	cmd *exec.Cmd
	log string
	// ended is closed when it has ended; status is set then.
	ended  chan struct{}
	status string
}

// start NAME PROGRAM ARGUMENT...
//
// Starts a program in the namespace, in the background, with its output in NAME.log. It is
// killed at the end of the script.
func cmdStart(b *bench, args []string) {
	if len(args) < 2 {
		b.Fatalf("usage: start NAME PROGRAM ARGUMENT...")
	}
	if b.running[args[0]] != nil {
		b.Fatalf("%s is already running", args[0])
	}
	p := &process{cmd: b.command(args[1:]), log: args[0] + ".log", ended: make(chan struct{})}
	log, err := os.Create(b.MkAbs(p.log))
	b.Check(err)
	defer log.Close() // the child has a separate descriptor
	p.cmd.Stdout, p.cmd.Stderr = log, log
	b.Check(netnstest.Start(b.namespace, p.cmd))
	go func() {
		p.status = exitStatus(p.cmd.Wait())
		close(p.ended)
	}()
	b.running[args[0]] = p
	b.Defer(func() {
		_ = p.cmd.Process.Kill() // an error means that it has ended
		<-p.ended
	})
}

// exitStatus returns the exit status, or the signal that ended a program.
func exitStatus(err error) string {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return "0"
	case !ok:
		return err.Error()
	case exit.Sys().(syscall.WaitStatus).Signaled():
		return exit.Sys().(syscall.WaitStatus).Signal().String()
	default:
		return exitText(exit.ExitCode())
	}
}

func exitText(status int) string { return strconv.Itoa(status) }

func (b *bench) process(name string) *process {
	p := b.running[name]
	if p == nil {
		b.Fatalf("%s has not been started", name)
	}
	return p
}

// await NAME PATTERN
//
// Waits until the log of a program in the background matches.
func cmdAwait(b *bench, args []string) {
	if len(args) != 2 {
		b.Fatalf("usage: await NAME PATTERN")
	}
	p, pattern := b.process(args[0]), regexp.MustCompile(`(?m)`+args[1])
	for deadline := time.Now().Add(waitMax); ; time.Sleep(5 * time.Millisecond) {
		log := b.ReadFile(p.log)
		switch {
		case pattern.MatchString(log):
			return
		case time.Now().After(deadline):
			b.Fatalf("%v passed without %q in\n%s", waitMax, args[1], log)
		}
	}
}

// end NAME SIGNAL STATUS
//
// Sends TERM, INT, KILL or NONE to a program in the background, and waits for its end.
// STATUS is its exit status, or the signal that ended it, such as "killed".
func cmdEnd(b *bench, args []string) {
	if len(args) != 3 {
		b.Fatalf("usage: end NAME SIGNAL STATUS")
	}
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	signal, ok := signals[args[1]]
	p := b.process(args[0])
	switch {
	case ok:
		b.Check(p.cmd.Process.Signal(signal))
	case args[1] != "NONE":
		b.Fatalf("unknown signal %s", args[1])
	}
	select {
	case <-p.ended:
	case <-time.After(waitMax):
		b.Fatalf("%s still runs %v after %v:\n%s", args[0], waitMax, signal, b.ReadFile(p.log))
	}
	if p.status != args[2] {
		b.Fatalf("%s ended with %s, want %s:\n%s", args[0], p.status, args[2], b.ReadFile(p.log))
	}
}

// signal NAME STOP|CONT
//
// Stops a program in the background, or lets it continue.
func cmdSignal(b *bench, args []string) {
	signals := map[string]syscall.Signal{"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	if len(args) != 2 || signals[args[1]] == 0 {
		b.Fatalf("usage: signal NAME STOP|CONT")
	}
	b.Check(b.process(args[0]).cmd.Process.Signal(signals[args[1]]))
}

// enter NAME
//
// From now on, rules are listed inside the sandbox of a program in the background, with the
// command that it printed.
func cmdEnter(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: enter NAME")
	}
	cmdAwait(b, []string{args[0], `^  \S+ sandbox exec -- (\S*-save|nft list ruleset)$`})
	hint := regexp.MustCompile(`(?m)^  (\S+ sandbox exec --) (?:\S*-save|nft list ruleset)$`).FindStringSubmatch(b.ReadFile(b.process(args[0]).log))
	b.entrance = strings.Fields(hint[1])
}

// unstable matches what differs between two listings of the same rules: comments with the
// time, and counters.
var unstable = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$|^-A \S+( -d 127\.0\.0\.0/8)? -m nfacct .*\n| -m nfacct --nfacct-name +\S+`)

// listing returns the rules of both families in all tables, in the variant of the script,
// and in nftables mode also the tables of the proxy.
func (b *bench) listing() string {
	variant := b.Getenv("VARIANT")
	if variant == "" {
		variant = "nft"
	}
	var all strings.Builder
	for _, base := range []string{"iptables", "ip6tables"} {
		program := base + "-" + variant + "-save"
		all.WriteString(program + "\n" + unstable.ReplaceAllString(b.printed(program), ""))
	}
	if b.Getenv("MODE") != "nftables" {
		return all.String()
	}
	tables := b.printed("nft", "list", "tables")
	for _, family := range []string{"ip", "ip6"} {
		if strings.Contains(tables, "table "+family+" kube-proxy\n") {
			all.WriteString(sortBlocks(b.printed("nft", "--stateless", "list", "table", family, "kube-proxy")))
		}
	}
	return all.String()
}

// printed returns the output of a program inside. If it fails, the script fails.
func (b *bench) printed(words ...string) string {
	words = append(append([]string{}, b.entrance...), words...)
	status, stdout, stderr := b.finish(words)
	if status != 0 {
		b.Fatalf("%s: status %d: %s", strings.Join(words, " "), status, stderr)
	}
	return stdout
}

// block matches the beginning of a chain, set or map.
var block = regexp.MustCompile(`(?m)^\t(chain|set|map) `)

// sortBlocks sorts the chains, sets and maps of a table, which nft prints in order of
// creation.
func sortBlocks(table string) string {
	table = strings.TrimSuffix(table, "}\n")
	var blocks []string
	end := len(table)
	for _, at := range slices.Backward(block.FindAllStringIndex(table, -1)) {
		blocks = append(blocks, strings.TrimSpace(table[at[0]:end]))
		end = at[0]
	}
	slices.Sort(blocks)
	return table[:end] + strings.Join(blocks, "\n\n") + "\n}\n"
}

// rules FILE
//
// Writes the rules in the kernel to a file.
func cmdRules(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: rules FILE")
	}
	b.Check(os.WriteFile(b.MkAbs(args[0]), []byte(b.listing()), 0o600))
}

// [!] await-rules PATTERN
//
// Waits until the rules in the kernel match (or no longer match).
func cmdAwaitRules(ts *testscript.TestScript, neg bool, args []string) {
	b := benchOf(ts)
	if len(args) != 1 {
		b.Fatalf("usage: [!] await-rules PATTERN")
	}
	pattern := regexp.MustCompile(`(?m)` + args[0])
	b.awaitRules(func(rules string) bool { return pattern.MatchString(rules) != neg })
}

// await-same FILE
//
// Waits until the rules in the kernel equal those in a file.
func cmdAwaitSame(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: await-same FILE")
	}
	want := b.ReadFile(args[0])
	b.awaitRules(func(rules string) bool { return rules == want })
}

func (b *bench) awaitRules(right func(rules string) bool) {
	deadline := time.Now().Add(waitMax)
	for {
		rules := b.listing()
		if right(rules) {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%v later the rules are\n%s", waitMax, rules)
		}
	}
}

// api FILE KUBECONFIG
//
// Starts an API server in the namespace, with the objects of a manifest, and writes a
// kubeconfig for it.
func cmdAPI(b *bench, args []string) {
	if len(args) != 2 {
		b.Fatalf("usage: api FILE KUBECONFIG")
	}
	server, err := apitest.New(func(network, address string) (net.Listener, error) { return b.namespace.Listen(network, address) })
	b.Check(err)
	b.Defer(func() { b.Check(server.Stop()) })
	resources := map[string]string{"Service": apitest.Services, "EndpointSlice": apitest.EndpointSlices, "Node": apitest.Nodes, "Pod": apitest.Pods}
	for text := range strings.SplitSeq(b.ReadFile(args[0]), "\n---\n") {
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		b.Check(err)
		server.Set(resources[kind.Kind], object)
	}
	b.api = server
	server.Proxy(b.pod)
	b.Check(os.WriteFile(b.MkAbs(args[1]), fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "http://%s"}}]
users: [{name: u}]
`, server.Address()), 0o600))
}

// pod passes questions for a pod with a port on to that port of the namespace: all pods share its network.
func (b *bench) pod(_, name string) http.Handler {
	_, port, _ := strings.Cut(name, ":")
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "127.0.0.1:" + port})
	to.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		inside := b.namespace.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, inside
	}}
	to.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"kind":"Status","message":"error trying to reach service: %v"}`, err) // the client has gone
	}
	return to
}

// events COUNT REASON PATTERN
//
// Waits until the API server has received so many events with a reason, and checks that each note
// matches. The proxy sends an event a moment after what it reports.
func cmdEvents(b *bench, args []string) {
	if len(args) != 3 {
		b.Fatalf("usage: events COUNT REASON PATTERN")
	}
	pattern := regexp.MustCompile(args[2])
	for deadline := time.Now().Add(waitMax); ; time.Sleep(5 * time.Millisecond) {
		found := 0
		for _, event := range b.api.Events() {
			if event.Reason != args[1] {
				continue
			}
			found++
			if !pattern.MatchString(event.Note) {
				b.Fatalf("event %s says %q, which does not match %q", event.Reason, event.Note, args[2])
			}
		}
		if strconv.Itoa(found) == args[0] {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%v later there are %d events %s, want %s", waitMax, found, args[1], args[0])
		}
	}
}
