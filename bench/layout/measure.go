package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A result is one row of the table. Times of writes are the least of the repetitions, in milliseconds; times of
// packets are medians in nanoseconds.
type result struct {
	Variant  string `json:"variant"`
	Services int    `json:"services"`
	Layout   string `json:"layout"`
	Chains   int    `json:"chains"`
	Rules    int    `json:"rules"`

	Load         float64 `json:"load_ms,omitempty"`
	Replace      float64 `json:"replace_ms,omitempty"`
	ReplaceWhole float64 `json:"replace_with_dispatch_ms,omitempty"` // flat only
	Add          float64 `json:"add_ms,omitempty"`

	FewestRules int   `json:"fewest_rules"`
	MostRules   int   `json:"most_rules"`
	First       int64 `json:"first_ns,omitempty"`
	Last        int64 `json:"last_ns,omitempty"`
	Miss        int64 `json:"miss_ns,omitempty"`

	Note string `json:"note,omitempty"`
}

// A bench runs the layouts, each in a network namespace of its own.
type bench struct {
	variant string
	repeat  int
	flows   int
	split   int // chains per input of a whole table; 0 is all
	timeout time.Duration
	lock    string // a lock file of our own: nobody else sees the namespace
}

// enter moves the calling thread to a new network namespace, in which all Service and endpoint addresses answer.
func enter() error {
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	for _, line := range []string{
		"link set lo up",
		"address add 10.0.0.1/32 dev lo",
		"route add 10.96.0.0/16 dev lo src 10.0.0.1",
		"route add local 10.128.0.0/9 dev lo",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// load restores one input after the other and says how long that took in all.
func (b bench) load(inputs []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	var total time.Duration
	for _, input := range inputs {
		took, err := b.restore(ctx, input)
		total += took
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (b bench) restore(ctx context.Context, input string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "iptables-"+b.variant+"-restore", "-w", "5", "--noflush", "--counters")
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+b.lock)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if ctx.Err() != nil {
		return took, fmt.Errorf("not within %s: %w", b.timeout, ctx.Err())
	}
	if err != nil {
		return took, fmt.Errorf("%s: %w: %.300s", cmd.Args[0], err, out.String())
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run measures one layout. A whole table that does not get in within the time limit is a result, with a note.
func (b bench) run(l layout, services []service, extra service) (result, error) {
	input := l.table(services)
	r := result{Variant: b.variant, Services: len(services), Layout: l.String(), Chains: len(input.chains), Rules: input.rules()}
	first, last, fewest, most := l.extremes(services)
	r.FewestRules, r.MostRules = fewest, most
	whole := input.inputs(b.split)
	for range max(1, b.repeat/3) {
		if err := enter(); err != nil {
			return r, err
		}
		took, err := b.load(whole)
		if errors.Is(err, context.DeadlineExceeded) {
			r.Note = err.Error()
			return r, nil
		}
		if err != nil {
			return r, fmt.Errorf("%s: whole table: %w", l, err)
		}
		r.Load = least(r.Load, took)
	}
	if err := b.packets(&r, first, last); err != nil {
		return r, fmt.Errorf("%s: %w", l, err)
	}
	next := uint32(endpointNet + 1<<22)
	changed := services[len(services)/2]
	for range b.repeat {
		var t *text
		next++
		t, changed = l.replace(changed, next)
		if err := b.keep(&r.Replace, t); err != nil {
			return r, fmt.Errorf("%s: replace: %w", l, err)
		}
		if l.Leaf == 0 {
			next++
			t, changed = l.replace(changed, next)
			l.whole(t, services)
			if err := b.keep(&r.ReplaceWhole, t); err != nil {
				return r, fmt.Errorf("%s: replace with dispatch: %w", l, err)
			}
		}
	}
	for i := range b.repeat {
		extra.name = fmt.Sprintf("added/service-%d:http", i)
		if err := b.keep(&r.Add, l.add(services, extra)); err != nil {
			return r, fmt.Errorf("%s: add: %w", l, err)
		}
	}
	return r, nil
}

func (b bench) keep(into *float64, t *text) error {
	took, err := b.load(t.inputs(0))
	if err != nil {
		return err
	}
	*into = least(*into, took)
	return nil
}

func least(sofar float64, took time.Duration) float64 {
	if now := milliseconds(took); sofar == 0 || now < sofar {
		return now
	}
	return sofar
}

// packets times the first packet of new flows: to the Service found first, to the one found last, and to
// an address that is no Service. The three take turns, so that noise meets all alike.
func (b bench) packets(r *result, first, last service) error {
	sink, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(sink)
	if err := syscall.SetsockoptTimeval(sink, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 2}); err != nil {
		return err
	}
	if err := syscall.Bind(sink, &syscall.SockaddrInet4{Port: endpointPort}); err != nil {
		return err
	}
	targets := []*syscall.SockaddrInet4{
		{Port: servicePort, Addr: bytesOf(first.address)},
		{Port: servicePort, Addr: bytesOf(last.address)},
		{Port: endpointPort, Addr: bytesOf(endpointNet + 1<<22)},
	}
	samples := make([][]int64, len(targets))
	buffer := make([]byte, 16)
	for port := 10000; port < 10000+b.flows; port++ {
		for i, target := range targets {
			took, err := sendFrom(port, target)
			if err != nil {
				return fmt.Errorf("packet to %v:%d: %w", target.Addr, target.Port, err)
			}
			// What arrives proves the translation; an empty sink also costs each packet the same.
			if _, _, err := syscall.Recvfrom(sink, buffer, 0); err != nil {
				return fmt.Errorf("packet to %v:%d did not reach an endpoint: %w", target.Addr, target.Port, err)
			}
			samples[i] = append(samples[i], took.Nanoseconds())
		}
	}
	for _, s := range samples {
		slices.Sort(s)
	}
	r.First, r.Last, r.Miss = samples[0][b.flows/2], samples[1][b.flows/2], samples[2][b.flows/2]
	return nil
}

func sendFrom(port int, target *syscall.SockaddrInet4) (time.Duration, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{10, 0, 0, 1}}); err != nil {
		return 0, err
	}
	start := time.Now()
	err = syscall.Sendto(fd, []byte("x"), 0, target)
	return time.Since(start), err
}

func bytesOf(a uint32) [4]byte {
	return [4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}
}
